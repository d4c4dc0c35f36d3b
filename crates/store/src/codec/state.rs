//! Codec of agent records, permissions, states and ledgers.

use std::borrow::Cow;

use agent::journal::{
    AgentRecord, AgentState, RestartPolicy, Serial, StoredAccount, StoredGrantRequest, StoredLedger,
    StoredPermissions,
};
use agent::outside::Timestamp;
use agent::permission::{Budget, DirectoryIdentity, FilePath, HostPattern, Level, Resource};
use agent::{AgentId, PrincipalId, TodoItem, TodoStatus, TokenCalibration, UsageTotals};
use serde::{Deserialize, Serialize};

use super::CodecFault;
use super::approval::RuleBody;
use super::message::{UsageBody, decode_halt, encode_halt, is_zero};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentBody<'a> {
    id: Cow<'a, str>,
    parent: Option<Serial>,
    created_at: i64,
    by: Cow<'a, str>,
    system_prompt: Option<Cow<'a, str>>,
    cwd: Cow<'a, str>,
    model: Option<Cow<'a, str>>,
    capability: String,
    on_restart: Cow<'a, str>,
    origin: Option<Cow<'a, str>>,
}

impl<'a> AgentBody<'a> {
    pub(super) fn encode(record: &'a AgentRecord) -> Self {
        let AgentRecord {
            id,
            parent,
            created_at,
            by,
            system_prompt,
            cwd,
            model,
            capability_digest,
            on_restart,
            permissions: _,
            origin,
        } = record;
        Self {
            id: id.as_str().into(),
            parent: *parent,
            created_at: created_at.0,
            by: encode_principal(by),
            system_prompt: system_prompt.as_deref().map(Cow::Borrowed),
            cwd: cwd.as_str().into(),
            model: model.as_deref().map(Cow::Borrowed),
            capability: crate::digest::hex(capability_digest),
            on_restart: on_restart.name().into(),
            origin: origin.as_deref().map(Cow::Borrowed),
        }
    }

    pub(super) fn decode(self, permissions: StoredPermissions) -> Result<AgentRecord, CodecFault> {
        let capability_digest = crate::digest::unhex(&self.capability)
            .ok_or_else(|| CodecFault::new("capability is not a digest"))?;
        Ok(AgentRecord {
            id: decode_agent_id(&self.id)?,
            parent: self.parent,
            created_at: Timestamp(self.created_at),
            by: decode_principal(&self.by)?,
            system_prompt: self.system_prompt.map(Cow::into_owned),
            cwd: decode_file_path(&self.cwd)?,
            model: self.model.map(Cow::into_owned),
            capability_digest,
            on_restart: RestartPolicy::ALL
                .into_iter()
                .find(|policy| policy.name() == self.on_restart)
                .ok_or_else(|| CodecFault::new(format!("unknown on_restart {:?}", self.on_restart)))?,
            permissions,
            origin: self.origin.map(Cow::into_owned),
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PermissionsBody<'a> {
    preset: Cow<'a, str>,
    #[serde(with = "LevelTag")]
    level: Level,
    /// One limit for each of [`Resource::ALL`], in that order.
    budget: [Option<u64>; Resource::ALL.len()],
    may: GrantRequestBody<'a>,
    may_grant: Option<GrantBody<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<RuleBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Level", rename_all = "snake_case")]
enum LevelTag {
    Sandboxed,
    Trusted,
    Yolo,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantBody<'a> {
    preset: Option<Cow<'a, str>>,
    #[serde(rename = "ask")]
    request: GrantRequestBody<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantRequestBody<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Cow<'a, [String]>>,
    disable_tools: Cow<'a, [String]>,
    write_paths: Option<Vec<Cow<'a, str>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commands: Option<Cow<'a, [String]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hosts: Option<Vec<Cow<'a, str>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    denied_hosts: Vec<Cow<'a, str>>,
    may_create: Option<Cow<'a, [String]>>,
}

impl<'a> PermissionsBody<'a> {
    pub(super) fn encode(permissions: &'a StoredPermissions) -> Self {
        let StoredPermissions { preset, level, budget, may, may_grant, rules } = permissions;
        Self {
            preset: preset.into(),
            level: *level,
            budget: Resource::ALL.map(|resource| budget.limit(resource)),
            may: GrantRequestBody::encode(may),
            may_grant: may_grant.as_ref().map(|(preset, request)| GrantBody {
                preset: preset.as_deref().map(Cow::Borrowed),
                request: GrantRequestBody::encode(request),
            }),
            rules: rules.iter().map(RuleBody::encode).collect(),
        }
    }

    pub(super) fn decode(self) -> Result<StoredPermissions, CodecFault> {
        let limits = Resource::ALL.into_iter().zip(self.budget);
        let may_grant = self.may_grant.map(|grant| {
            let request = grant.request.decode()?;
            Ok::<_, CodecFault>((grant.preset.map(Cow::into_owned), request))
        });
        Ok(StoredPermissions {
            preset: self.preset.into_owned(),
            level: self.level,
            budget: limits
                .fold(Budget::unlimited(), |budget, (resource, limit)| budget.with_limit(resource, limit)),
            may: self.may.decode()?,
            may_grant: may_grant.transpose()?,
            rules: self.rules.into_iter().map(RuleBody::decode).collect::<Result<_, _>>()?,
        })
    }
}

impl<'a> GrantRequestBody<'a> {
    fn encode(request: &'a StoredGrantRequest) -> Self {
        let StoredGrantRequest {
            tools,
            disable_tools,
            write_paths,
            commands,
            hosts,
            denied_hosts,
            may_create,
        } = request;
        let texts = |paths: &'a Vec<FilePath>| paths.iter().map(|path| path.as_str().into()).collect();
        let list = |names: &'a Option<Vec<String>>| names.as_ref().map(|names| names.into());
        Self {
            tools: list(tools),
            disable_tools: disable_tools.into(),
            write_paths: write_paths.as_ref().map(texts),
            commands: list(commands),
            hosts: hosts.as_deref().map(encode_hosts),
            denied_hosts: encode_hosts(denied_hosts),
            may_create: list(may_create),
        }
    }

    fn decode(self) -> Result<StoredGrantRequest, CodecFault> {
        let paths = |texts: Vec<Cow<'_, str>>| texts.iter().map(|text| decode_file_path(text)).collect();
        Ok(StoredGrantRequest {
            tools: self.tools.map(Cow::into_owned),
            disable_tools: self.disable_tools.into_owned(),
            write_paths: self.write_paths.map(paths).transpose()?,
            commands: self.commands.map(Cow::into_owned),
            hosts: self.hosts.as_deref().map(decode_hosts).transpose()?,
            denied_hosts: decode_hosts(&self.denied_hosts)?,
            may_create: self.may_create.map(Cow::into_owned),
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StateBody {
    messages: u64,
    turns: u64,
    requests: u64,
    usage: UsageBody,
    #[serde(default, skip_serializing_if = "is_zero")]
    cost: u64,
    /// In thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "gauge")]
    calibration: Option<u64>,
    halted: Option<String>,
    last_rounds: u64,
    last_action_at: Option<i64>,
    should_shutdown: bool,
    is_finished: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    identities: Vec<IdentityBody>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    todo: Vec<TodoBody>,
}

/// A step of a plan: the name of its status, and its text.
type TodoBody = (Cow<'static, str>, String);

/// The identity of a directory: path, device, inode, birth time.
type IdentityBody = (String, u64, u64, Option<i64>);

impl StateBody {
    pub(super) fn encode(state: &AgentState) -> Self {
        let AgentState {
            messages,
            turns,
            usage_totals: UsageTotals { requests, usage, cost },
            calibration,
            halted,
            last_rounds,
            last_action_at,
            should_shutdown,
            is_finished,
            identities,
            todo,
        } = state;
        let identity = |identity: &DirectoryIdentity| {
            let DirectoryIdentity { path, device, inode, born_ns } = identity;
            (path.to_string(), *device, *inode, *born_ns)
        };
        Self {
            messages: *messages,
            turns: *turns,
            requests: *requests,
            usage: UsageBody::from(*usage),
            cost: *cost,
            calibration: calibration.permille(),
            halted: halted.map(|halt| encode_halt(halt).to_owned()),
            last_rounds: *last_rounds,
            last_action_at: last_action_at.map(|timestamp| timestamp.0),
            should_shutdown: *should_shutdown,
            is_finished: *is_finished,
            identities: identities.iter().map(identity).collect(),
            todo: todo.iter().map(|item| (item.status.name().into(), item.text.clone())).collect(),
        }
    }

    pub(super) fn decode(self) -> Result<AgentState, CodecFault> {
        let identity = |(path, device, inode, born_ns): IdentityBody| {
            Ok::<_, CodecFault>(DirectoryIdentity { path: decode_file_path(&path)?, device, inode, born_ns })
        };
        Ok(AgentState {
            messages: self.messages,
            turns: self.turns,
            usage_totals: UsageTotals { requests: self.requests, usage: self.usage.into(), cost: self.cost },
            calibration: TokenCalibration::from_permille(self.calibration),
            halted: self.halted.as_deref().map(decode_halt).transpose()?,
            last_rounds: self.last_rounds,
            last_action_at: self.last_action_at.map(Timestamp),
            should_shutdown: self.should_shutdown,
            is_finished: self.is_finished,
            identities: self.identities.into_iter().map(identity).collect::<Result<_, _>>()?,
            todo: self.todo.into_iter().map(decode_todo_item).collect::<Result<_, _>>()?,
        })
    }
}

fn decode_todo_item((status, text): TodoBody) -> Result<TodoItem, CodecFault> {
    let status = TodoStatus::ALL.into_iter().find(|known| known.name() == status);
    Ok(TodoItem { text, status: status.ok_or_else(|| CodecFault::new("unknown status of a plan's step"))? })
}

/// An account as a tuple: limit, used, reserved, paid elsewhere, share, budget source, total. It is written at every
/// turn, and field names would be most of its text.
pub(super) type AccountBody = (Option<u64>, u64, u64, u64, u64, Option<Serial>, u64);

const ACCOUNTS: usize = Resource::CONSUMED.len();

/// A ledger: version, accounts, and the cost of model calls. `Plain` omits a cost of zero; ledgers written before
/// models had prices have this shape.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum LedgerBody {
    Priced(u64, [AccountBody; ACCOUNTS], u64),
    Plain(u64, [AccountBody; ACCOUNTS]),
}

impl LedgerBody {
    pub(super) fn encode(ledger: &StoredLedger) -> Self {
        let accounts = ledger.accounts.map(|account| {
            let StoredAccount { limit, used, reserved, paid_elsewhere, share, budget_source, total } =
                account;
            (limit, used, reserved, paid_elsewhere, share, budget_source, total)
        });
        match ledger.cost {
            0 => Self::Plain(ledger.version, accounts),
            cost => Self::Priced(ledger.version, accounts, cost),
        }
    }

    pub(super) fn decode(self) -> StoredLedger {
        let (version, accounts, cost) = match self {
            Self::Priced(version, accounts, cost) => (version, accounts, cost),
            Self::Plain(version, accounts) => (version, accounts, 0),
        };
        let accounts =
            accounts.map(|(limit, used, reserved, paid_elsewhere, share, budget_source, total)| {
                StoredAccount { limit, used, reserved, paid_elsewhere, share, budget_source, total }
            });
        StoredLedger { version, accounts, cost }
    }
}

pub(super) fn encode_principal(principal: &PrincipalId) -> Cow<'static, str> {
    principal.to_string().into()
}

pub(super) fn decode_principal(text: &str) -> Result<PrincipalId, CodecFault> {
    PrincipalId::parse(text).ok_or_else(|| CodecFault::new(format!("unknown principal {text:?}")))
}

pub(super) fn decode_agent_id(text: &str) -> Result<AgentId, CodecFault> {
    AgentId::parse(text).map_err(CodecFault::new)
}

fn encode_hosts<'a>(hosts: &[HostPattern]) -> Vec<Cow<'a, str>> {
    hosts.iter().map(|host| host.to_string().into()).collect()
}

fn decode_hosts(texts: &[Cow<'_, str>]) -> Result<Vec<HostPattern>, CodecFault> {
    let decode = |text: &Cow<'_, str>| {
        HostPattern::parse(text).ok_or_else(|| CodecFault::new(format!("unknown host pattern {text:?}")))
    };
    texts.iter().map(decode).collect()
}

pub(super) fn decode_file_path(text: &str) -> Result<FilePath, CodecFault> {
    let path = FilePath::resolve(text, &FilePath::root()).map_err(CodecFault::new)?;
    if path.as_str() == text {
        Ok(path)
    } else {
        Err(CodecFault::new(format!("path {text:?} is not normalized")))
    }
}
