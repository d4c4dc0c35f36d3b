//! Sample values for tests: records of every kind, and short constructors for appends.

use agent::compaction::{CompactionMethod, CompactionPart, CompactionRecord};
use agent::journal::{
    AcceptedTurn, AgentRecord, AgentState, ApprovalAnswer, ApprovalRequest, Record, RestartPolicy, Serial,
    StoredAccount, StoredGrantRequest, StoredLedger, StoredPermissions,
};
use agent::outside::{Append, EntryRange, Timestamp};
use agent::permission::{
    Budget, DirectoryIdentity, FilePath, Grantor, HostPattern, Level, Resource, Rule, RuleAction, RuleEntry,
    RuleScope,
};
use agent::{
    AgentId, Ending, Fault, FaultKind, Halt, Image, Message, MessageSource, PrincipalId, RequestId, Role,
    TodoItem, TodoStatus, TokenCalibration, ToolCall, ToolClass, ToolOutcome, TurnEnd, TurnOutcome, Usage,
    UsageTotals,
};

/// Texts with special characters, for round-trip tests.
pub(crate) fn edge_case_texts() -> Vec<String> {
    let plain = [
        "",
        " ",
        "\0",
        "a\0b",
        "\u{1f980} crab",
        "\"quoted\" \\ back",
        "line\nline\r\n\ttab",
        "\u{2028}\u{feff}\u{fffd}",
        "null",
        "{\"json\": [1, 2]}",
        "'; DROP TABLE journal; --",
        "%s %00 ?1",
    ];
    let mut texts: Vec<String> = plain.into_iter().map(str::to_owned).collect();
    texts.push("\u{1f980}".repeat(2000));
    texts
}

/// A text of about 1 MiB.
pub(crate) fn long_text() -> String {
    "\u{1f980}\0".repeat((1 << 20) / 5)
}

pub(crate) fn id(name: &str) -> AgentId {
    AgentId::parse(name).unwrap()
}

fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).unwrap()
}

pub(crate) fn append(agent: Serial, name: &str, records: impl Into<Vec<Record>>) -> Append {
    Append {
        agent,
        agent_id: (!name.is_empty()).then(|| id(name)),
        at: Timestamp(1_700_000_000_000_000),
        records: records.into(),
        state: None,
        ledgers: Vec::new(),
    }
}

pub(crate) fn entry_range(agent: Option<Serial>, after: u64) -> EntryRange {
    EntryRange { agent, after, limit: usize::MAX, bytes_max: usize::MAX }
}

pub(crate) fn message(text: &str) -> Record {
    Record::MessageAdded(Box::new(Message::user(text, MessageSource::default())))
}

pub(crate) fn accepted(turn: u64, request: &str) -> Record {
    let message = Message::user(format!("content of {request}"), MessageSource::default());
    Record::TurnAccepted(Box::new(AcceptedTurn { turn, request_id: request_id(request), message }))
}

pub(crate) fn ended(turn: u64, request: &str) -> Record {
    let end = TurnEnd {
        content: format!("answer to {request}"),
        ..TurnEnd::without_content(TurnOutcome::Completed)
    };
    Record::TurnEnded { turn, request_id: request_id(request), end: Box::new(end) }
}

pub(crate) fn reopened(turn: u64, request: &str) -> Record {
    Record::TurnReopened { turn, request_id: request_id(request), messages: 1 }
}

pub(crate) fn destroyed() -> Record {
    Record::Destroyed { by: PrincipalId::Admin }
}

pub(crate) fn renamed(name: &str) -> Record {
    Record::Renamed { by: PrincipalId::Admin, id: id(name) }
}

/// An agent whose name is that of another principal.
fn agent_named_admin() -> PrincipalId {
    PrincipalId::Agent(id("admin"))
}

pub(crate) fn request_id(text: &str) -> RequestId {
    RequestId::Text(text.to_owned())
}

pub(crate) fn created(name: &str, parent: Option<Serial>) -> Record {
    let record = AgentRecord { id: id(name), parent, ..agent_record("a prompt") };
    Record::Created(Box::new(record))
}

pub(crate) fn permissions(text: &str) -> StoredPermissions {
    let grant_request = StoredGrantRequest {
        disable_tools: vec![text.to_owned(), "fs.write_file".to_owned()],
        write_paths: Some(vec![path("/srv/a b"), path("/srv/\u{1f980}")]),
        may_create: Some(vec!["sandboxed".to_owned()]),
        ..StoredGrantRequest::default()
    };
    StoredPermissions {
        preset: text.to_owned(),
        level: Level::Trusted,
        budget: Budget::unlimited()
            .with_limit(Resource::Tokens, Some(u64::MAX))
            .with_limit(Resource::Children, Some(0)),
        may: grant_request.clone(),
        may_grant: Some((Some(text.to_owned()), grant_request)),
        rules: Vec::new(),
    }
}

pub(crate) fn agent_record(text: &str) -> AgentRecord {
    AgentRecord {
        id: id("worker-1"),
        parent: None,
        created_at: Timestamp(-1),
        by: agent_named_admin(),
        system_prompt: Some(text.to_owned()),
        cwd: path("/srv/work"),
        model: Some(text.to_owned()),
        capability_digest: std::array::from_fn(|index| u8::try_from(index).unwrap() * 7),
        on_restart: RestartPolicy::Mark,
        permissions: permissions(text),
        origin: Some(text.to_owned()),
    }
}

pub(crate) fn state(turns: u64) -> AgentState {
    AgentState {
        messages: 2,
        turns,
        usage_totals: UsageTotals {
            requests: 3,
            usage: Usage {
                input: u64::MAX,
                output: 5,
                cached: 6,
                cache_written: 7,
                reasoning: 8,
                estimated: 9,
            },
            cost: 9,
        },
        calibration: TokenCalibration::from_permille(Some(1100)),
        halted: Some(Halt::Budget(Resource::WallMs)),
        last_rounds: 8,
        last_action_at: Some(Timestamp(9)),
        should_shutdown: true,
        is_finished: false,
        identities: Vec::new(),
        todo: Vec::new(),
    }
}

pub(crate) fn state_with_identities() -> AgentState {
    let identity = |path: &str, inode, born_ns| DirectoryIdentity {
        path: FilePath::resolve(path, &FilePath::root()).expect("a valid path"),
        device: 2049,
        inode,
        born_ns,
    };
    let identities = vec![identity("/srv/a b", 17, Some(-1)), identity("/srv/\u{1f980}", u64::MAX, None)];
    AgentState { identities, ..AgentState::default() }
}

pub(crate) fn state_with_plan() -> AgentState {
    let item = |status: TodoStatus| TodoItem { text: format!("{} \0 \u{1f980}", status.name()), status };
    AgentState { todo: TodoStatus::ALL.map(item).into(), ..AgentState::default() }
}

pub(crate) fn ledger(version: u64) -> StoredLedger {
    let account = |used| StoredAccount {
        limit: Some(u64::MAX),
        used,
        reserved: 2,
        paid_elsewhere: 3,
        share: 4,
        budget_source: Some(5),
        total: 6,
    };
    StoredLedger {
        version,
        accounts: [account(version), account(1), StoredAccount::default(), account(3)],
        cost: version / 2,
    }
}

fn messages(text: &str) -> Vec<Message> {
    let call = ToolCall { id: text.to_owned(), name: text.to_owned(), arguments: text.to_owned() };
    let source = MessageSource { kind: Some(text.to_owned()), agent: Some(RequestId::Text(text.to_owned())) };
    let numbered = MessageSource { kind: None, agent: Some(RequestId::Number(i64::MIN)) };
    let mut messages = vec![
        Message::user(text, source),
        Message::user(text, numbered),
        Message {
            images: vec![Image { media_type: text.to_owned(), data: text.as_bytes().into() }],
            ..Message::user(text, MessageSource::default())
        },
        Message { reasoning_block: Some(text.to_owned()), ..Message::assistant(text, vec![call.clone()]) },
        Message::assistant(text, vec![call.clone(), call]),
        Message {
            role: Role::Tool,
            tool_call_id: Some(text.to_owned()),
            ..Message::user(text, MessageSource::default())
        },
    ];
    for ending in [Ending::Cancelled, Ending::Failed, Ending::Denied, Ending::Interrupted] {
        messages.push(Message::aborted(text, ending));
    }
    messages
}

fn turn_ends(text: &str) -> Vec<TurnEnd> {
    let kinds = [
        FaultKind::Invalid,
        FaultKind::Denied,
        FaultKind::NotFound,
        FaultKind::Busy { retry_after_ms: u64::MAX },
        FaultKind::Full { retry_after_ms: 0 },
        FaultKind::Interrupted,
        FaultKind::Model,
        FaultKind::ContextFull,
        FaultKind::Internal,
    ];
    let mut outcomes =
        vec![TurnOutcome::Completed, TurnOutcome::Cancelled, TurnOutcome::Interrupted(text.to_owned())];
    outcomes.extend(kinds.map(|kind| {
        TurnOutcome::Failed(Fault { kind, public: text.to_owned().into(), cause: Some(text.to_owned()) })
    }));
    outcomes.push(TurnOutcome::Failed(Fault::new(FaultKind::Model, "without a cause")));
    let mut ends: Vec<_> = outcomes.into_iter().map(TurnEnd::without_content).collect();
    let halts = Resource::ALL.map(Halt::Budget).into_iter().chain([Halt::IterationLimit]);
    ends.extend(halts.map(|halt| TurnEnd {
        outcome: TurnOutcome::Completed,
        content: text.to_owned(),
        usage: Some(Usage { input: 1, output: u64::MAX, ..Usage::default() }),
        rounds: u64::MAX,
        halted: Some(halt),
    }));
    ends
}

/// Permissions with lists of hosts, which stores of earlier versions do not have.
pub(crate) fn permissions_with_hosts(text: &str) -> StoredPermissions {
    let host = |text| HostPattern::parse(text).unwrap();
    let may = StoredGrantRequest {
        hosts: Some(vec![host("*.example.com"), host("[::1]:8080")]),
        denied_hosts: vec![host("a.example.com")],
        ..StoredGrantRequest::default()
    };
    let may_grant = StoredGrantRequest { hosts: Some(Vec::new()), ..StoredGrantRequest::default() };
    StoredPermissions { may, may_grant: Some((None, may_grant)), ..permissions(text) }
}

/// Permissions with lists of tools and commands, which stores of earlier versions do not have.
pub(crate) fn permissions_with_lists(text: &str) -> StoredPermissions {
    let may = StoredGrantRequest {
        tools: Some(vec![text.to_owned(), "cmd.exec".to_owned()]),
        commands: Some(vec![text.to_owned(), "*".to_owned()]),
        ..StoredGrantRequest::default()
    };
    let may_grant = StoredGrantRequest {
        tools: Some(Vec::new()),
        commands: Some(Vec::new()),
        ..StoredGrantRequest::default()
    };
    StoredPermissions { may, may_grant: Some((None, may_grant)), ..permissions(text) }
}

/// Every kind of record with every variant of its fields; `text` fills all text fields.
pub(crate) fn every_record(text: &str) -> Vec<Record> {
    let owned = || text.to_owned();
    let bare = AgentRecord {
        parent: Some(7),
        system_prompt: None,
        model: None,
        origin: None,
        on_restart: RestartPolicy::Resume,
        permissions: StoredPermissions {
            may: StoredGrantRequest::default(),
            may_grant: None,
            level: Level::Yolo,
            ..permissions(text)
        },
        ..agent_record(text)
    };
    let without_grant_preset = StoredPermissions {
        may_grant: Some((None, StoredGrantRequest::default())),
        level: Level::Sandboxed,
        ..permissions(text)
    };
    let mut records = vec![
        Record::Created(Box::new(agent_record(text))),
        Record::Created(Box::new(bare)),
        Record::PermissionsChanged { by: agent_named_admin(), permissions: Box::new(without_grant_preset) },
        Record::Renamed { by: PrincipalId::Admin, id: id(".temporary") },
        Record::Finished { by: agent_named_admin() },
        Record::Destroyed { by: PrincipalId::Restart },
        Record::TurnBegun { turn: u64::MAX },
        Record::TurnReopened { turn: 1, request_id: RequestId::Number(-5), messages: usize::MAX },
        Record::RolledBack { by: PrincipalId::Admin, messages: 0 },
        Record::Denied { principal: agent_named_admin(), action: owned(), rule: owned(), text: owned() },
        Record::DaemonStarted { version: owned() },
        Record::DaemonStopped,
    ];
    for message in messages(text) {
        records.push(Record::Steered { turn: 3, message: Box::new(message.clone()) });
        records.push(Record::TurnAccepted(Box::new(AcceptedTurn {
            turn: 4,
            request_id: RequestId::Text(owned()),
            message: message.clone(),
        })));
        records.push(Record::MessageAdded(Box::new(message)));
    }
    for (method, turn) in [(CompactionMethod::Summary, Some(u64::MAX)), (CompactionMethod::Dropped, None)] {
        let mut parts = vec![CompactionPart::Retained { from: 0, to: usize::MAX }];
        parts.extend(messages(text).into_iter().map(|message| CompactionPart::Inserted(Box::new(message))));
        records.push(Record::Compacted(Box::new(CompactionRecord {
            turn,
            by: PrincipalId::Auto,
            method,
            messages_before: 9,
            tokens_before: u64::MAX,
            tokens_after: 1,
            parts,
        })));
    }
    for class in [ToolClass::Pure, ToolClass::Keyed, ToolClass::Once] {
        let (call_id, tool) = (owned(), owned());
        records.push(Record::CallBegun { turn: 5, index: usize::MAX, call_id, tool, class });
    }
    for outcome in [ToolOutcome::Done(owned()), ToolOutcome::Failed(owned()), ToolOutcome::Denied(owned())] {
        records.push(Record::CallDone { turn: 6, index: 0, outcome });
    }
    let ended = |end| Record::TurnEnded { turn: 7, request_id: RequestId::Text(owned()), end: Box::new(end) };
    records.extend(turn_ends(text).into_iter().map(ended));
    let permissions = Box::new(permissions_with_lists(text));
    records.push(Record::PermissionsChanged { by: PrincipalId::Admin, permissions });
    records.extend(approval_records(text));
    records.push(undone_record());
    records
}

fn undone_record() -> Record {
    let paths = ["/srv/a b", "/srv/\u{1f980}"].map(path).to_vec();
    Record::TurnUndone { turn: 8, by: agent_named_admin(), paths }
}

/// An approval request, its answers, and permissions with rules.
fn approval_records(text: &str) -> Vec<Record> {
    let owned = || text.to_owned();
    let request = ApprovalRequest {
        id: owned(),
        turn: 8,
        index: 1,
        call_id: owned(),
        tool: owned(),
        arguments: owned(),
        effects: vec![owned(), owned()],
        reason: owned(),
        asked_at: Timestamp(5),
        expires_at: Timestamp(i64::MAX),
    };
    let answer = |rule: Option<RuleEntry>, by, grantor| {
        Record::ApprovalAnswered(Box::new(ApprovalAnswer {
            id: owned(),
            turn: 8,
            index: 1,
            is_allowed: rule.is_some(),
            by,
            grantor,
            note: rule.is_none().then(owned),
            rule,
        }))
    };
    let rules: Vec<RuleEntry> = [
        (RuleAction::Allow, RuleScope::Subtree, Grantor::Agent(7), "run:cargo test in /srv/a b"),
        (RuleAction::Deny, RuleScope::Agent, Grantor::Admin, "host:*.example.com"),
        (RuleAction::Ask, RuleScope::Subtree, Grantor::Creator, "fs.delete {\"path\": \"\u{1f980}\"}"),
    ]
    .into_iter()
    .map(|(action, scope, grantor, rule)| RuleEntry {
        action,
        rule: Rule::parse(rule).unwrap(),
        scope,
        grantor,
    })
    .collect();
    let changed = Box::new(StoredPermissions { rules: rules.clone(), ..permissions(text) });
    vec![
        Record::ApprovalRequested(Box::new(request)),
        answer(rules.into_iter().next(), agent_named_admin(), Grantor::Agent(7)),
        answer(None, PrincipalId::Auto, Grantor::Admin),
        Record::PermissionsChanged { by: PrincipalId::Admin, permissions: changed },
    ]
}

/// The number of record kinds. A new kind does not compile until it is counted here, and then tests require a sample.
pub(crate) fn kind_count(record: &Record) -> usize {
    match record {
        Record::Created(_)
        | Record::PermissionsChanged { .. }
        | Record::Renamed { .. }
        | Record::Finished { .. }
        | Record::Destroyed { .. }
        | Record::TurnAccepted(_)
        | Record::TurnBegun { .. }
        | Record::MessageAdded(_)
        | Record::Steered { .. }
        | Record::CallBegun { .. }
        | Record::CallDone { .. }
        | Record::ApprovalRequested(_)
        | Record::ApprovalAnswered(_)
        | Record::TurnUndone { .. }
        | Record::TurnEnded { .. }
        | Record::TurnReopened { .. }
        | Record::RolledBack { .. }
        | Record::Compacted(_)
        | Record::Denied { .. }
        | Record::DaemonStarted { .. }
        | Record::DaemonStopped => 21,
    }
}
