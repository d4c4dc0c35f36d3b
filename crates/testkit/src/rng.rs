//! Deterministic random numbers: SplitMix64 from a seed.

/// A random number generator that yields the same numbers for the same seed.
#[derive(Debug, Clone)]
pub struct TestRng {
    state: u64,
}

impl TestRng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator for another thread.
    pub fn split(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_u64() % bound as u64).expect("the bound is a usize")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// One of the items; panics if there are none.
    pub fn pick<'items, T>(&mut self, items: &'items [T]) -> &'items T {
        &items[self.below(items.len())]
    }

    /// One of the items, if there are any.
    pub fn choose<'items, T>(&mut self, items: &'items [T]) -> Option<&'items T> {
        (!items.is_empty()).then(|| self.pick(items))
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, probability: usize) -> bool {
        self.below(100) < probability
    }
}
