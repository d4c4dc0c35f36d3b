//! Places where a debug build can be told to fail: `edge[:kind][@n]=action[,…]`. A release build has none.

/// Where it can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailpointSite {
    CommitBefore,
    CommitAfter,
    CheckpointBefore,
    MigrateBefore,
    MigrateMiddle,
}

/// What to pretend; a process that shall end has ended.
#[cfg_attr(not(debug_assertions), expect(dead_code, reason = "a release build pretends nothing"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// As if the disk were full.
    DiskFull,
    /// As if the disk had not taken what was written.
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
        /// A kind of record that has to be in the group.
        kind: Option<String>,
        /// Only this time; every time when there is none.
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

        /// Passes an edge with records of these kinds.
        pub(crate) fn hit<'a>(
            &mut self,
            edge: FailpointSite,
            kinds: &(impl Iterator<Item = &'a str> + Clone),
        ) -> Option<InjectedFault> {
            let mut pretence = None;
            for point in self.points.iter_mut().filter(|point| point.site == edge) {
                if !point.kind.as_deref().is_none_or(|kind| kinds.clone().any(|there| there == kind)) {
                    continue;
                }
                point.hits += 1;
                if point.hit_number.is_none_or(|time| time == point.hits) {
                    pretence = point.action.execute().or(pretence);
                }
            }
            pretence
        }
    }

    impl Failpoint {
        fn parse(text: &str) -> Result<Self, String> {
            let wrong = |what: &str| format!("the failpoint {text:?} {what}");
            let (place, action) = text.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
            let (place, time) = match place.split_once('@') {
                None => (place, None),
                Some((place, time)) => {
                    (place, Some(time.parse().map_err(|_| wrong("has no number after `@`"))?))
                }
            };
            let (edge, kind) = match place.split_once(':') {
                None => (place, None),
                Some((edge, kind)) => (edge, Some(kind.to_owned())),
            };
            let edge = match edge {
                "commit.before" => FailpointSite::CommitBefore,
                "commit.after" => FailpointSite::CommitAfter,
                "checkpoint.before" => FailpointSite::CheckpointBefore,
                "migrate.before" => FailpointSite::MigrateBefore,
                "migrate.middle" => FailpointSite::MigrateMiddle,
                _ => return Err(wrong("has an unknown edge")),
            };
            let action = Action::parse(action).ok_or_else(|| wrong("has an unknown action"))?;
            if edge == FailpointSite::CommitAfter && matches!(action, Action::Inject(_)) {
                return Err(wrong("comes too late: the commit is done"));
            }
            Ok(Self { site: edge, kind, hit_number: time, hits: 0, action })
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

        #[expect(clippy::disallowed_methods, reason = "a delay is what the failpoint was asked for")]
        fn execute(self) -> Option<InjectedFault> {
            match self {
                Self::Abort => std::process::abort(),
                Self::Delay(delay_ms) => {
                    std::thread::sleep(Duration::from_millis(delay_ms));
                    None
                }
                Self::Inject(pretence) => Some(pretence),
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_failpoint_counts_only_what_it_waits_for() {
            let text = "commit.before:message@2=full, commit.before@3=fsync";
            let mut points = Failpoints::parse(Some(text)).unwrap();
            let mut pass =
                |kinds: &[&'static str]| points.hit(FailpointSite::CommitBefore, &kinds.iter().copied());
            assert_eq!(pass(&["message", "denied"]), None);
            assert_eq!(pass(&["denied"]), None);
            assert_eq!(
                pass(&["message"]),
                Some(InjectedFault::FsyncFailed),
                "the second message, and the third commit"
            );
            assert_eq!(pass(&["message"]), None);
            assert_eq!(points.hit(FailpointSite::CheckpointBefore, &std::iter::empty()), None);
        }

        #[test]
        fn a_failpoint_that_makes_no_sense_says_why() {
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
    use super::{Edge, Pretence};

    #[derive(Debug, Default)]
    pub(crate) struct Failpoints;

    impl Failpoints {
        pub(crate) fn parse(text: Option<&str>) -> Result<Self, String> {
            match text {
                None => Ok(Self),
                Some(_) => {
                    Err("this is a release build, which has no failpoints: take a debug build".to_owned())
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
