//! The Landlock domain of a command: which files it may access, and no signals or abstract sockets beyond it.

use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};

use crate::request::{Access, Tier};

/// A granted file or directory.
pub(super) struct Grant<'fd> {
    pub(super) handle: BorrowedFd<'fd>,
    pub(super) access: Access,
    pub(super) is_directory: bool,
}

/// The file accesses that a kernel must enforce for any tier: without `Truncate` of version 3, files elsewhere could be
/// emptied.
const FILES_ABI: ABI = ABI::V3;

const READ_DATA: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
/// No devices: root could create one in a granted directory and reach the disk by it.
const CHANGE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSock | MakeFifo | MakeSym | Refer
});
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});

/// Enters the domain, for this process and its descendants.
pub(super) fn enter(grants: &[Grant<'_>], tier: Tier) -> Result<(), String> {
    let ruleset =
        ruleset(tier).map_err(|error| format!("the kernel lacks a needed Landlock feature: {error}"))?;
    let ruleset = grants.iter().try_fold(ruleset, add_rule).map_err(|error| error.to_string())?;
    let status = ruleset.restrict_self().map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("the kernel does not enforce Landlock rules".to_owned()),
        // Partially: accesses of later versions are not known to this kernel.
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// Enters a domain that restricts signals alone: to processes of this domain and of domains within it.
pub(super) fn enter_signal_scope() -> Result<(), String> {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let created = required.scope(Scope::Signal).and_then(Ruleset::create);
    let status = created.and_then(RulesetCreated::restrict_self).map_err(|error| error.to_string())?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err("the kernel does not enforce Landlock rules".to_owned()),
    }
}

fn ruleset(tier: Tier) -> Result<RulesetCreated, landlock::RulesetError> {
    let required = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(FILES_ABI))?;
    let scopes = Scope::AbstractUnixSocket | Scope::Signal;
    let scoped = match tier {
        Tier::Landlock => required.scope(scopes)?.set_compatibility(CompatLevel::BestEffort),
        // The namespaces hide other processes and their sockets. An unconfined command enters no domain for files.
        Tier::Namespaces | Tier::Unconfined => {
            required.set_compatibility(CompatLevel::BestEffort).scope(scopes)?
        }
    };
    scoped
        .handle_access(AccessFs::IoctlDev)?
        .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
        .create()
}

fn add_rule(ruleset: RulesetCreated, grant: &Grant<'_>) -> Result<RulesetCreated, landlock::RulesetError> {
    let access = match grant.access {
        Access::List => AccessFs::ReadDir.into(),
        Access::Read => READ,
        Access::ReadData => READ_DATA,
        Access::Write => READ | CHANGE,
        Access::Device => DEVICE,
    };
    let access = if grant.is_directory { access } else { access & AccessFs::from_file(ABI::V5) };
    ruleset.add_rule(PathBeneath::new(grant.handle, access))
}
