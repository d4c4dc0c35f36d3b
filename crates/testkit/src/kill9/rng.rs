//! Chance that repeats itself: the same seed makes the same choices.

#[derive(Debug, Clone)]
pub(super) struct TestRng(u64);

impl TestRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for somebody, so that threads do not share any.
    pub(super) fn split(&mut self) -> Self {
        Self(self.next_u64())
    }

    /// From 0 to one less than `sides`.
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.next_u64() % sides.max(1)
    }

    /// Whether something happens that happens so often out of a hundred times.
    pub(super) fn percent(&mut self, often: u64) -> bool {
        self.below(100) < often
    }

    pub(super) fn choose<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let place = self.below(from.len() as u64);
        from.get(usize::try_from(place).unwrap_or(0))
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
