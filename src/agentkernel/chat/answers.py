"""Which function answers which request?"""

from __future__ import annotations

from typing import assert_never

from agentkernel.chat import acts, certified, looks, setting, standing
from agentkernel.chat.intent import (
    AskDocs,
    Compare,
    Diff,
    Edit,
    ExplainLine,
    Intent,
    LessMemory,
    MemoryLimit,
    OnCandidate,
    Plain,
    Run,
    SetBudget,
    SetDtype,
    SetPolicy,
    SetPrecision,
    SetShapes,
    SetTarget,
    StopAt,
    SwitchBranch,
    TryIdea,
    Undo,
    WriteTo,
)
from agentkernel.chat.language import EXAMPLES
from agentkernel.chat.replies import Reply, SessionEnded, TextReply
from agentkernel.chat.work import SessionState

STARTERS = frozenset(
    {
        "run",
        "more_aggressive",
        "less_memory",
        "less_energy",
        "lower_latency",
        "try_idea",
        "repair",
    }
)
"""What starts work by itself."""


def answer(work: SessionState, intent: Intent, text: str, *, run_now: bool) -> Reply:
    """Do what `intent` asks. `run_now` False: a later request of the sentence starts the work.

    Raises AgentKernelError for what cannot be done, with one clear line.
    """
    match intent:
        case Plain():
            return _plain(work, intent, text, run_now=run_now)
        case OnCandidate():
            return _on_candidate(work, intent, text)
        case Run():
            return acts.run(work, intent, text)
        case LessMemory():
            return setting.less_memory(work, intent, text, run_now=run_now)
        case MemoryLimit():
            return setting.memory_limit(work, intent)
        case SetPrecision():
            return setting.precision(work, intent)
        case SetTarget():
            return setting.target(work, intent)
        case SetShapes():
            return setting.shapes(work, intent)
        case SetDtype():
            return setting.dtype(work, intent)
        case ExplainLine():
            return looks.explain_line(work, intent)
        case Diff():
            return looks.diff(work, intent)
        case Compare():
            return looks.compare(work, intent)
        case TryIdea():
            return acts.try_idea(work, intent, text)
        case Undo():
            return acts.undo(work, intent)
        case SwitchBranch():
            return acts.switch_branch(work, intent)
        case StopAt():
            return setting.stop_at(work, intent)
        case SetBudget():
            return setting.budget(work, intent)
        case SetPolicy():
            return setting.policy(work, intent)
        case WriteTo():
            return acts.save(work, intent) if intent.name == "save" else _export(work, intent)
        case AskDocs():
            return looks.ask_docs(work, intent)
        case Edit():
            return acts.edit(work, intent)
        case _:
            assert_never(intent)


def _plain(work: SessionState, intent: Plain, text: str, *, run_now: bool) -> Reply:
    match intent.name:
        case "more_aggressive":
            return setting.more_aggressive(work, text, run_now=run_now)
        case "less_energy" | "lower_latency":
            return setting.objective(work, intent.name, text, run_now=run_now)
        case "history":
            return standing.history(work)
        case "tree":
            return looks.tree(work)
        case "ideas" | "plan":
            return looks.plan(work)
        case "redo":
            return acts.redo(work)
        case "cost":
            return standing.cost(work)
        case "settings":
            return standing.settings(work)
        case "targets":
            return standing.targets(work)
        case "status":
            return standing.status(work)
        case "restart":
            return acts.restart(work)
        case "help":
            return TextReply(text=help_text())
        case "quit":
            return SessionEnded(text=f"Saved. Go on with:\nagentkernel resume {work.id}")
        case "stop":
            return TextReply(text="Nothing is running. Ctrl-C stops a step while it runs.")
        case "approve" | "decline":
            return looks.not_possible("Nothing waits for an answer.")
        case _:
            assert_never(intent.name)


def _on_candidate(work: SessionState, intent: OnCandidate, text: str) -> Reply:
    match intent.name:
        case "why_slow" | "profile":
            return looks.profile(work, intent)
        case "roofline":
            return looks.roofline(work, intent)
        case "explain_kernel":
            return looks.explain_kernel(work, intent)
        case "why_rejected":
            return looks.why_rejected(work, intent)
        case "show_candidate":
            return looks.show_candidate(work, intent)
        case "return_to":
            return acts.return_to(work, intent)
        case "fork":
            return acts.fork(work, intent)
        case "keep":
            return acts.keep(work, intent)
        case "reject":
            return acts.reject(work, intent)
        case "verify":
            return certified.verify(work, intent)
        case "certificate":
            return certified.certificate(work, intent)
        case "repair":
            return acts.repair(work, intent, text)
        case _:
            assert_never(intent.name)


def _export(work: SessionState, intent: WriteTo) -> Reply:
    from agentkernel.chat.transcript import (
        JSON_LINES,
        PAGE,
        SCRIPT,
        as_jsonl,
        as_markdown,
        as_script,
    )

    turns = work.store.turns()
    settings = work.settings
    facts = (
        ("module", work.module.name),
        ("inputs", work.module.shape_sets[0].label),
        ("target", settings.target or "the local GPU, else h100"),
        ("precision", settings.goals.precision),
        ("coder", settings.coder),
        ("session", work.id),
    )
    texts = {
        PAGE: as_markdown(work.module.name, facts, turns),
        JSON_LINES: as_jsonl(turns),
        SCRIPT: as_script(turns),
    }
    return acts.export(work, intent, texts)


def help_text() -> str:
    """Every request with a sentence that asks for it."""
    width = max(len(item) for item in EXAMPLES.values())
    return "\n".join(f"{text:<{width}}  {name}" for name, text in EXAMPLES.items())
