//! A small generator, so that each caller does something else and does it again in the next run.

pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn next_below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// One of these.
    pub(crate) fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u64::try_from(from.len()).expect("a list is shorter than that");
        from[usize::try_from(self.next_below(count)).expect("a place in the list")]
    }
}
