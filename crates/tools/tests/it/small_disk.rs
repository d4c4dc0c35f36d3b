//! A disk that is soon full.

use std::process::Command;

/// A small disk of its own, as long as it lives.
pub(crate) struct SmallDisk(String);

impl SmallDisk {
    pub(crate) fn mount(folder: String) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &folder]).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0);
    }
}
