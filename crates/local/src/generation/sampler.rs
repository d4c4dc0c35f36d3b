//! Token sampling from logits: greedy, or with temperature and top-p.

use crate::engine::math::exponential;

/// Deterministic token sampler: the same seed samples the same tokens.
#[derive(Debug)]
pub(crate) struct Sampler {
    temperature: f32,
    top_p: f32,
    state: u64,
}

/// Likeliest tokens considered; the tail beyond them has a negligible probability.
const CANDIDATES_MAX: usize = 1_000;

impl Sampler {
    /// Creates a sampler; a temperature of 0 is greedy.
    pub(crate) fn new(temperature: f32, top_p: f32, seed: u64) -> Self {
        let temperature = if temperature.is_finite() { temperature.clamp(0.0, 10.0) } else { 0.0 };
        let top_p = if top_p.is_finite() && top_p > 0.0 { top_p.min(1.0) } else { 1.0 };
        Self { temperature, top_p, state: seed }
    }

    /// Samples the next token; masked tokens have a logit of negative infinity. `None` if no logit is finite.
    pub(crate) fn sample(&mut self, logits: &[f32]) -> Option<u32> {
        if self.temperature < 1e-4 {
            return argmax(logits);
        }
        let mut candidates: Vec<(u32, f32)> =
            (0u32..).zip(logits.iter().copied()).filter(|(_, logit)| logit.is_finite()).collect();
        let descending = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if candidates.len() > CANDIDATES_MAX {
            candidates.select_nth_unstable_by(CANDIDATES_MAX, descending);
            candidates.truncate(CANDIDATES_MAX);
        }
        candidates.sort_unstable_by(descending);
        let best = candidates.first()?.1;
        for (_, weight) in &mut candidates {
            *weight = exponential((*weight - best) / self.temperature);
        }
        let total: f32 = candidates.iter().map(|(_, weight)| weight).sum();
        let (mut nucleus, mut sum) = (0, 0.0);
        while nucleus < candidates.len() && (nucleus == 0 || sum < self.top_p * total) {
            sum += candidates[nucleus].1;
            nucleus += 1;
        }
        let mut remaining = self.random_fraction() * sum;
        for (token, weight) in &candidates[..nucleus] {
            remaining -= weight;
            if remaining < 0.0 {
                return Some(*token);
            }
        }
        candidates[..nucleus].last().map(|(token, _)| *token)
    }

    /// Returns a number in [0, 1) from SplitMix64.
    fn random_fraction(&mut self) -> f32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 40) as f32 / (1u32 << 24) as f32
    }
}

fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (token, logit) in (0u32..).zip(logits) {
        if logit.is_finite() && best.is_none_or(|(_, best)| *logit > best) {
            best = Some((token, *logit));
        }
    }
    best.map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_temperature_is_greedy() {
        let mut sampler = Sampler::new(0.0, 1.0, 7);
        assert_eq!(sampler.sample(&[0.1, f32::NEG_INFINITY, 3.0, 2.9]), Some(2));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY, f32::NAN]), None);
    }

    #[test]
    fn sampling_is_deterministic_and_follows_probabilities() {
        let draw = |seed| {
            let mut sampler = Sampler::new(1.0, 1.0, seed);
            (0..2000).filter_map(|_| sampler.sample(&[0.0, 1.0, f32::NEG_INFINITY])).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        let ones = draw(5).iter().filter(|token| **token == 1).count();
        assert!((1390..1530).contains(&ones), "{ones} of 2000, about 1462 expected");
        assert!(!draw(5).contains(&2));
    }

    #[test]
    fn top_p_excludes_the_tail() {
        let mut sampler = Sampler::new(1.0, 0.5, 1);
        assert!((0..500).all(|_| sampler.sample(&[2.0, 0.0, 0.0]) == Some(0)));
    }
}
