//! Which token comes next, given every token's score.

use crate::engine::math::exponential;

/// Draws tokens; the same seed draws the same ones.
#[derive(Debug)]
pub(crate) struct Sampler {
    temperature: f32,
    top_p: f32,
    state: u64,
}

/// Tokens looked at when drawing: the tail beyond them has no share that matters.
const CANDIDATES_MAX: usize = 1_000;

impl Sampler {
    /// A sampler; a temperature of 0 takes the likeliest.
    pub(crate) fn new(temperature: f32, top_p: f32, seed: u64) -> Self {
        let temperature = if temperature.is_finite() { temperature.clamp(0.0, 10.0) } else { 0.0 };
        let top_p = if top_p.is_finite() && top_p > 0.0 { top_p.min(1.0) } else { 1.0 };
        Self { temperature, top_p, state: seed }
    }

    /// The next token; forbidden ones score negative infinity.
    pub(crate) fn sample(&mut self, scores: &[f32]) -> Option<u32> {
        if self.temperature < 1e-4 {
            return argmax(scores);
        }
        let mut candidates: Vec<(u32, f32)> =
            (0u32..).zip(scores.iter().copied()).filter(|(_, score)| score.is_finite()).collect();
        let downwards = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if candidates.len() > CANDIDATES_MAX {
            candidates.select_nth_unstable_by(CANDIDATES_MAX, downwards);
            candidates.truncate(CANDIDATES_MAX);
        }
        candidates.sort_unstable_by(downwards);
        let best = candidates.first()?.1;
        for (_, share) in &mut candidates {
            *share = exponential((*share - best) / self.temperature);
        }
        let all: f32 = candidates.iter().map(|(_, share)| share).sum();
        let (mut kept, mut sum) = (0, 0.0);
        while kept < candidates.len() && (kept == 0 || sum < self.top_p * all) {
            sum += candidates[kept].1;
            kept += 1;
        }
        let mut drawn = self.random_fraction() * sum;
        for (token, share) in &candidates[..kept] {
            drawn -= share;
            if drawn < 0.0 {
                return Some(*token);
            }
        }
        candidates[..kept].last().map(|(token, _)| *token)
    }

    /// A number from 0 up to 1, by SplitMix64.
    fn random_fraction(&mut self) -> f32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 40) as f32 / (1u32 << 24) as f32
    }
}

fn argmax(scores: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (token, score) in (0u32..).zip(scores) {
        if score.is_finite() && best.is_none_or(|(_, best)| *score > best) {
            best = Some((token, *score));
        }
    }
    best.map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_temperature_the_likeliest_comes() {
        let mut sampler = Sampler::new(0.0, 1.0, 7);
        assert_eq!(sampler.sample(&[0.1, f32::NEG_INFINITY, 3.0, 2.9]), Some(2));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY, f32::NAN]), None);
    }

    #[test]
    fn one_seed_draws_one_sequence_and_shares_are_kept() {
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
    fn top_p_leaves_the_tail_out() {
        let mut sampler = Sampler::new(1.0, 0.5, 1);
        assert!((0..500).all(|_| sampler.sample(&[2.0, 0.0, 0.0]) == Some(0)));
    }
}
