//! A seeded random number generator: callers with different seeds differ, and every run repeats the same sequence.

pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn next_below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Returns a random element.
    pub(crate) fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u64::try_from(from.len()).expect("a length fits into u64");
        from[usize::try_from(self.next_below(count)).expect("an index of the list")]
    }
}
