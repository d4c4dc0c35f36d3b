//! Failpoints: fault injection for tests in debug builds, `edge[:kind][@n]=action[,…]`. A release build has none.

/// Site at which a fault can be injected; the syntax of failpoints calls it an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailpointSite {
    CommitBefore,
    CommitAfter,
    CheckpointBefore,
    MigrateBefore,
    MigrateMiddle,
}

/// An injected fault for the caller to simulate. Aborts and delays are executed by `hit` itself.
#[cfg_attr(not(debug_assertions), expect(dead_code, reason = "a release build injects no faults"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// The disk is full.
    DiskFull,
    /// An fsync failed.
    FsyncFailed,
}

#[cfg(debug_assertions)]
pub(super) use debug::Failpoints;
#[cfg(not(debug_assertions))]
pub(super) use release::Failpoints;

#[cfg(debug_assertions)]
mod debug {
    use std::time::Duration;

    use super::{FailpointSite, InjectedFault};

    #[derive(Debug, Default)]
    pub(crate) struct Failpoints {
        points: Vec<Failpoint>,
    }

    #[derive(Debug)]
    struct Failpoint {
        site: FailpointSite,
        /// Counts only groups with a record of this kind.
        kind: Option<String>,
        /// Triggers only at this hit; at every hit if `None`.
        hit_number: Option<u64>,
        hits: u64,
        action: Action,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Action {
        Abort,
        Delay(u64),
        Inject(InjectedFault),
    }

    impl Failpoints {
        pub(crate) fn parse(text: Option<&str>) -> Result<Self, String> {
            let points = text.unwrap_or_default().split(',').map(str::trim).filter(|point| !point.is_empty());
            Ok(Self { points: points.map(Failpoint::parse).collect::<Result<_, _>>()? })
        }

        /// Triggers the failpoints of a site for a group with records of these kinds.
        pub(crate) fn hit<'a>(
            &mut self,
            site: FailpointSite,
            kinds: &(impl Iterator<Item = &'a str> + Clone),
        ) -> Option<InjectedFault> {
            let mut injected = None;
            for point in self.points.iter_mut().filter(|point| point.site == site) {
                if !point.kind.as_deref().is_none_or(|kind| kinds.clone().any(|present| present == kind)) {
                    continue;
                }
                point.hits += 1;
                if point.hit_number.is_none_or(|number| number == point.hits) {
                    injected = point.action.execute().or(injected);
                }
            }
            injected
        }
    }

    impl Failpoint {
        fn parse(text: &str) -> Result<Self, String> {
            let invalid = |why: &str| format!("the failpoint {text:?} {why}");
            let (target, action) = text.split_once('=').ok_or_else(|| invalid("has no `=`"))?;
            let (target, hit_number) = match target.split_once('@') {
                None => (target, None),
                Some((target, number)) => {
                    (target, Some(number.parse().map_err(|_| invalid("has no number after `@`"))?))
                }
            };
            let (site, kind) = match target.split_once(':') {
                None => (target, None),
                Some((site, kind)) => (site, Some(kind.to_owned())),
            };
            let site = match site {
                "commit.before" => FailpointSite::CommitBefore,
                "commit.after" => FailpointSite::CommitAfter,
                "checkpoint.before" => FailpointSite::CheckpointBefore,
                "migrate.before" => FailpointSite::MigrateBefore,
                "migrate.middle" => FailpointSite::MigrateMiddle,
                _ => return Err(invalid("has an unknown edge")),
            };
            let action = Action::parse(action).ok_or_else(|| invalid("has an unknown action"))?;
            if site == FailpointSite::CommitAfter && matches!(action, Action::Inject(_)) {
                return Err(invalid("comes too late: the commit is done"));
            }
            Ok(Self { site, kind, hit_number, hits: 0, action })
        }
    }

    impl Action {
        fn parse(text: &str) -> Option<Self> {
            match text {
                "abort" => Some(Self::Abort),
                "full" => Some(Self::Inject(InjectedFault::DiskFull)),
                "fsync" => Some(Self::Inject(InjectedFault::FsyncFailed)),
                other => {
                    let delay_ms = other.strip_prefix("delay(")?.strip_suffix(')')?.parse().ok()?;
                    Some(Self::Delay(delay_ms))
                }
            }
        }

        #[expect(clippy::disallowed_methods, reason = "the failpoint requests a delay")]
        fn execute(self) -> Option<InjectedFault> {
            match self {
                Self::Abort => std::process::abort(),
                Self::Delay(delay_ms) => {
                    std::thread::sleep(Duration::from_millis(delay_ms));
                    None
                }
                Self::Inject(fault) => Some(fault),
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn failpoint_counts_only_matching_hits() {
            let text = "commit.before:message@2=full, commit.before@3=fsync";
            let mut points = Failpoints::parse(Some(text)).unwrap();
            let mut hit =
                |kinds: &[&'static str]| points.hit(FailpointSite::CommitBefore, &kinds.iter().copied());
            assert_eq!(hit(&["message", "denied"]), None);
            assert_eq!(hit(&["denied"]), None);
            assert_eq!(
                hit(&["message"]),
                Some(InjectedFault::FsyncFailed),
                "second message and third commit: the last failpoint wins"
            );
            assert_eq!(hit(&["message"]), None);
            assert_eq!(points.hit(FailpointSite::CheckpointBefore, &std::iter::empty()), None);
        }

        #[test]
        fn invalid_failpoint_is_rejected_with_the_reason() {
            for (text, why) in [
                ("commit.before", "has no `=`"),
                ("commit.during=abort", "has an unknown edge"),
                ("commit.before=explode", "has an unknown action"),
                ("commit.before=delay(soon)", "has an unknown action"),
                ("commit.before@first=abort", "has no number after `@`"),
                ("commit.after=full", "comes too late: the commit is done"),
            ] {
                assert_eq!(
                    Failpoints::parse(Some(text)).unwrap_err(),
                    format!("the failpoint {text:?} {why}")
                );
            }
            assert!(Failpoints::parse(None).unwrap().points.is_empty());
        }
    }
}

#[cfg(not(debug_assertions))]
mod release {
    use super::{FailpointSite, InjectedFault};

    #[derive(Debug, Default)]
    pub(crate) struct Failpoints;

    impl Failpoints {
        pub(crate) fn parse(text: Option<&str>) -> Result<Self, String> {
            match text {
                None => Ok(Self),
                Some(_) => {
                    Err("failpoints are not available: this is a release build; use a debug build".to_owned())
                }
            }
        }

        pub(crate) fn hit<'a>(
            &mut self,
            _: FailpointSite,
            _: &(impl Iterator<Item = &'a str> + Clone),
        ) -> Option<InjectedFault> {
            None
        }
    }
}
