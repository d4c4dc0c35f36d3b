//! `nexus3 approvals`: lists, shows and answers the tool calls that wait for an approval.

use clap::{Args, Subcommand};
use nexus3_protocol::methods::{
    AnswerApprovalParams, ApprovalDecision, ApprovalScope, ApprovalView, ListApprovalsParams, spec,
};

use crate::args::ConnectionArgs;
use crate::commands::print;
use crate::connection::{ConnectionOptions, Failure};
use crate::{EXIT_FAILURE, EXIT_SUCCESS, Streams};

/// Answer agents that ask before a tool call
#[derive(Debug, Args)]
#[command(after_help = "Without a command, the calls that wait are listed. ID may be shortened.
Exit code: 0 success, 1 no such request or the daemon failed, 2 wrong usage.

Examples:
  nexus3 approvals
  nexus3 approvals show 3f2a
  nexus3 approvals allow 3f2a
  nexus3 approvals allow 3f2a --scope agent --rule 'run:cargo test'
  nexus3 approvals deny 3f2a --note 'use the staging server'")]
pub struct ApprovalsArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the calls that wait
    #[command(after_help = "Example:\n  nexus3 approvals list --json")]
    List,
    /// Show one call in full
    #[command(after_help = "Example:\n  nexus3 approvals show 3f2a")]
    Show {
        /// Id of the request
        id: String,
    },
    /// Let the call run
    #[command(after_help = "Example:\n  nexus3 approvals allow 3f2a --scope agent --rule 'host:example.com'")]
    Allow(AnswerArgs),
    /// Deny the call
    #[command(after_help = "Example:\n  nexus3 approvals deny 3f2a --note 'not on Fridays'")]
    Deny(AnswerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// Id of the request
    id: String,
    /// Also later calls: once, agent or subtree
    #[arg(long, value_name = "SCOPE", default_value = "once", value_parser = parse_scope)]
    scope: ApprovalScope,
    /// Rule for later calls [default: exactly this call]
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Note that the model reads
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

fn parse_scope(text: &str) -> Result<ApprovalScope, String> {
    match text {
        "once" => Ok(ApprovalScope::Once),
        "agent" => Ok(ApprovalScope::Agent),
        "subtree" => Ok(ApprovalScope::Subtree),
        _ => Err("must be once, agent or subtree".to_owned()),
    }
}

pub(crate) async fn run(
    args: ApprovalsArgs,
    connection: &ConnectionOptions,
    streams: &mut Streams<'_>,
) -> Result<u8, Failure> {
    let client = connection.client();
    let list = client.list_approvals(&ListApprovalsParams::default()).await?;
    let (answer, decision) = match args.command {
        None | Some(ApprovalsCommand::List) if args.json => {
            return print::<spec::ListApprovals>(streams, &list);
        }
        None | Some(ApprovalsCommand::List) => {
            let text = match list.approvals.as_slice() {
                [] => "no calls wait for an approval\n".to_owned(),
                approvals => approvals.iter().map(summary).collect(),
            };
            return write(streams, &text);
        }
        Some(ApprovalsCommand::Show { id }) => {
            let Some(approval) = find(&list.approvals, &id) else { return not_found(streams, &id) };
            let text = if args.json {
                serde_json::to_string_pretty(approval).unwrap_or_default() + "\n"
            } else {
                details(approval)
            };
            return write(streams, &text);
        }
        Some(ApprovalsCommand::Allow(answer)) => (answer, ApprovalDecision::Allow),
        Some(ApprovalsCommand::Deny(answer)) => (answer, ApprovalDecision::Deny),
    };
    // The daemon says best what became of a request that is not listed any more.
    let id = find(&list.approvals, &answer.id).map_or(answer.id, |approval| approval.approval_id.clone());
    let params = AnswerApprovalParams {
        approval_id: id,
        answer: decision,
        scope: Some(answer.scope),
        rule: answer.rule,
        note: answer.note,
    };
    let answered = client.answer_approval(&params).await?;
    if args.json {
        return print::<spec::AnswerApproval>(streams, &answered);
    }
    let verb = match decision {
        ApprovalDecision::Allow => "allowed",
        ApprovalDecision::Deny => "denied",
    };
    let rule = answered.rule.map(|rule| format!("; rule added: {} {}", rule.action, printable(&rule.rule)));
    write(streams, &format!("{verb} {}{}\n", answered.approval_id, rule.unwrap_or_default()))
}

/// The request whose id begins with the text, if there is exactly one.
fn find<'a>(approvals: &'a [ApprovalView], id: &str) -> Option<&'a ApprovalView> {
    let mut matching =
        approvals.iter().filter(|approval| !id.is_empty() && approval.approval_id.starts_with(id));
    matching.next().filter(|_| matching.next().is_none())
}

fn not_found(streams: &mut Streams<'_>, id: &str) -> Result<u8, Failure> {
    let text =
        format!("no request begins with {}, or several do; nexus3 approvals lists them", printable(id));
    writeln!(streams.errors, "{text}").map_err(Failure::write_failed)?;
    Ok(EXIT_FAILURE)
}

fn write(streams: &mut Streams<'_>, text: &str) -> Result<u8, Failure> {
    streams.output.write_all(text.as_bytes()).map_err(Failure::write_failed)?;
    Ok(EXIT_SUCCESS)
}

/// Two lines on one request.
fn summary(approval: &ApprovalView) -> String {
    let effects = approval.effects.iter().map(|effect| printable(effect)).collect::<Vec<_>>().join("; ");
    format!(
        "{}  {} wants {}: {effects}\n    until {}; {}\n",
        approval.approval_id,
        approval.agent_id,
        printable(&approval.tool),
        approval.expires_at,
        printable(&approval.reason)
    )
}

/// Everything about one request, with the exact arguments.
fn details(approval: &ApprovalView) -> String {
    let path = std::iter::once(&approval.agent_id).chain(&approval.ancestors).rev();
    let path = path.map(String::as_str).collect::<Vec<_>>().join(" > ");
    let arguments = serde_json::to_string_pretty(&approval.arguments).unwrap_or_default();
    let arguments: String = arguments.lines().map(|line| format!("  {}\n", printable(line))).collect();
    let effects: String =
        approval.effects.iter().map(|effect| format!("  {}\n", printable(effect))).collect();
    format!(
        "request   {}\nagent     {path}\ntool      {}\nasked at  {}\nexpires   {}\nreason    {}\neffects\n{effects}arguments\n{arguments}",
        approval.approval_id,
        printable(&approval.tool),
        approval.asked_at,
        approval.expires_at,
        printable(&approval.reason)
    )
}

/// The text with control and direction characters escaped: what is shown is what runs.
pub(crate) fn printable(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_hidden(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threat_90_shown_text_hides_and_reorders_nothing() {
        let cases = [
            ("rm\u{202e}fdp.exe", "rm\\u{202e}fdp.exe"),
            ("ls\rrm -rf /", "ls\\u{d}rm -rf /"),
            ("\u{1b}[2K\u{1b}[1Gls", "\\u{1b}[2K\\u{1b}[1Gls"),
            ("a\u{200b}b\u{feff}c\u{2066}d", "a\\u{200b}b\\u{feff}c\\u{2066}d"),
            ("a\nb\tc\u{8}d\u{7f}e\u{9b}f", "a\\u{a}b\\u{9}c\\u{8}d\\u{7f}e\\u{9b}f"),
            ("grün 日本", "grün 日本"),
        ];
        for (text, shown) in cases {
            assert_eq!(printable(text), shown);
        }
        let long = "x".repeat(100_000);
        assert_eq!(printable(&long), long, "nothing is cut");
    }
}
