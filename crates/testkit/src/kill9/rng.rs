//! Deterministic random numbers: the same seed yields the same choices.

#[derive(Debug, Clone)]
pub(super) struct TestRng(u64);

impl TestRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for another thread.
    pub(super) fn split(&mut self) -> Self {
        Self(self.next_u64())
    }

    /// A number from 0 to `bound` - 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    /// True with this probability in percent.
    pub(super) fn percent(&mut self, probability: u64) -> bool {
        self.below(100) < probability
    }

    pub(super) fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.below(items.len() as u64);
        items.get(usize::try_from(index).unwrap_or(0))
    }

    /// SplitMix64.
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
