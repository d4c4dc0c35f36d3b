//! A file system of 64 KiB, to test a full disk.

use std::process::Command;

/// A mounted tmpfs of 64 KiB; unmounted on drop.
pub(crate) struct SmallDisk(String);

impl SmallDisk {
    pub(crate) fn mount(directory: String) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &directory]).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0);
    }
}
