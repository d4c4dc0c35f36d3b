//! The self-test, on a kernel that enforces both tiers.

use sandbox::SelfTest;

use crate::fixture::{TIERS, helper, system};

#[tokio::test]
async fn every_probe_passes_in_every_tier() {
    for tier in TIERS {
        let directory = tempfile::tempdir().unwrap();
        let directory = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        let test = SelfTest::run(&helper(), tier, &system(), &directory).await;
        assert!(test.passed(), "{}: {}", tier.name(), test.failure().unwrap_or_default());
    }
}
