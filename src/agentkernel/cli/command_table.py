"""Table of the commands: name, line of help, flags and body, of which `--help` loads none."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: its line in the list, and "module:name" below `agentkernel.cli` of the dataclass
    of its flags and of the function of one value that is its body."""

    name: str
    summary: str
    flags: str
    body: str
    hidden: bool = False
    """No list shows it: another command calls it."""


class Group(NamedTuple):
    """Commands behind one word, in the order of its help."""

    name: str
    summary: str
    commands: tuple[Command, ...]


COMMANDS = (
    Command(
        "optimize",
        "Make a module faster.",
        "options:OptimizeFlags",
        "optimize:optimize",
    ),
    Command(
        "resume",
        "Go on with a run or a session after a kill or Ctrl-C.",
        "options:ResumeFlags",
        "resume:resume",
    ),
    Command(
        "runs",
        "List the runs, oldest first.",
        "options:RunsFlags",
        "runs:runs",
    ),
    Command(
        "show",
        "Show a run.",
        "options:ShowFlags",
        "runs:show",
    ),
    Command(
        "plan",
        "Analyse a problem and its headroom; draft and run nothing.",
        "options:PlanFlags",
        "plan:plan",
    ),
    Command(
        "judge",
        "Judge a candidate against its module.",
        "options:JudgeFlags",
        "judge:judge",
    ),
    Command(
        "profile",
        "Judge a candidate, then time it.",
        "options:ProfileFlags",
        "judge:profile",
    ),
    Command(
        "verify",
        "Check a certificate and replay its judgement.",
        "options:VerifyFlags",
        "verify:verify",
    ),
    Command(
        "apply",
        "Put a run's kernel into a model and compare its outputs with fp64.",
        "options:ApplyFlags",
        "apply:apply",
    ),
    Command(
        "export",
        "Write a run's kernel as a Hub repository, a wheel or an operator.",
        "export_options:ExportFlags",
        "export:export",
    ),
    Command(
        "redteam",
        "Judge a corpus of hostile and honest candidates.",
        "bench.options:RedteamFlags",
        "bench.redteam:redteam",
    ),
    Command(
        "targets",
        "List the GPUs that kernels can be made for.",
        "options:TargetsFlags",
        "targets:targets",
    ),
    Command(
        "doctor",
        "Check this machine and what a coder needs.",
        "options:DoctorFlags",
        "doctor:doctor",
    ),
    Command(
        "chat",
        "Tune one module in conversation.",
        "options:ChatFlags",
        "chat.command:chat",
    ),
    Command(
        "batch",
        "Optimise a list of problems, or the models of a zoo.",
        "nightly.options:BatchFlags",
        "nightly.batch:batch",
    ),
    Command(
        "bench",
        "Measure a coder on a suite.",
        "bench.options:BenchFlags",
        "bench.suite:bench",
    ),
    Command(
        "report",
        "Write the page of a run or of a night.",
        "options:ReportFlags",
        "report:report",
    ),
    Command(
        "mcp",
        "Serve coding agents over MCP.",
        "coding_agent_options:McpFlags",
        "coding_agents:mcp",
    ),
    Command(
        "skill",
        "Write a skill folder that teaches a coding agent.",
        "coding_agent_options:SkillFlags",
        "coding_agents:skill",
    ),
    Command(
        "remote-worker",
        "Judge, time and search for another machine.",
        "remote_options:RemoteWorkerFlags",
        "remote:remote_worker",
        hidden=True,
    ),
    Command(
        "serve",
        "Serve the judge and the profiler over HTTP.",
        "serve_options:ServeFlags",
        "serve:serve",
    ),
)

KNOWLEDGE_COMMANDS = (
    Command(
        "build",
        "Take in what the package brings and bring the indexes up to date.",
        "knowledge.options:BuildFlags",
        "knowledge.maintenance:build",
    ),
    Command(
        "search",
        "Find pairs, kernels, notes and fixes.",
        "knowledge.options:SearchFlags",
        "knowledge.search:search",
    ),
    Command(
        "show",
        "Show an entry whole, also one that is found no more.",
        "knowledge.options:ShowEntryFlags",
        "knowledge.search:show_entry",
    ),
    Command(
        "stats",
        "Count the entries by kind, licence, verification and source.",
        "knowledge.options:StatsFlags",
        "knowledge.search:stats",
    ),
    Command(
        "add",
        "Add a pair of your own.",
        "knowledge.options:AddFlags",
        "knowledge.transfer:add",
    ),
    Command(
        "import-kernelbook",
        "Take in published pairs such as KernelBook.",
        "knowledge.options:ImportKernelbookFlags",
        "knowledge.transfer:import_kernelbook",
    ),
    Command(
        "generate",
        "Make pairs of a folder of modules with TorchInductor.",
        "knowledge.options:GenerateFlags",
        "knowledge.generate:generate",
    ),
    Command(
        "eval",
        "Ask labelled questions.",
        "knowledge.options:EvaluateSearchFlags",
        "knowledge.maintenance:evaluate_search",
    ),
    Command(
        "export",
        "Write the entries into a file, a line of JSON each.",
        "knowledge.options:ExportFlags",
        "knowledge.transfer:export_file",
    ),
    Command(
        "import",
        "Take in an export.",
        "knowledge.options:ImportFlags",
        "knowledge.transfer:import_file",
    ),
    Command(
        "doctor",
        "Check the folder, its file and its indexes.",
        "knowledge.options:CheckFlags",
        "knowledge.maintenance:check_knowledge",
    ),
)

LIBRARY_COMMANDS = (
    Command(
        "list",
        "List the kernels, oldest first.",
        "nightly.options:LibraryListFlags",
        "nightly.library:list_kernels",
    ),
    Command(
        "show",
        "Show a kernel whole, under each of its keys.",
        "nightly.options:LibraryShowFlags",
        "nightly.library:show",
    ),
    Command(
        "verify",
        "Judge kernels again and withdraw what no longer verifies.",
        "nightly.options:LibraryVerifyFlags",
        "nightly.library:verify",
    ),
    Command(
        "export",
        "Write sources, certificates and an index.",
        "nightly.options:LibraryExportFlags",
        "nightly.library:export",
    ),
    Command(
        "prune",
        "Show what would be dropped; --yes drops it.",
        "nightly.options:LibraryPruneFlags",
        "nightly.library:prune",
    ),
)

TRAIN_COMMANDS = (
    Command(
        "problems",
        "Write made modules as files; again at any time.",
        "train.options:ProblemsFlags",
        "train.pairs:problems",
    ),
    Command(
        "pairs",
        "Draft kernels for modules, break some, have all judged.",
        "train.options:PairsFlags",
        "train.pairs:pairs",
    ),
    Command(
        "reviews",
        "Ask a teacher what holds right kernels back.",
        "train.options:ReviewsFlags",
        "train.reviews:reviews",
    ),
    Command(
        "data",
        "Write rows of the three tasks, held-out modules and a card.",
        "train.options:DataFlags",
        "train.data:data",
    ),
    Command(
        "sft",
        "Fine-tune a model, or make a new one, on judged kernels.",
        "train.options:SftFlags",
        "train.model:sft",
    ),
    Command(
        "rl",
        "Let a model practise on the training modules, several turns each.",
        "train.options:RlFlags",
        "train.model:rl",
    ),
    Command(
        "evaluate",
        "Judge what models answer about the held-out modules.",
        "train.options:EvaluateFlags",
        "train.evaluate:evaluate_model",
    ),
    Command(
        "cost",
        "Compute the memory and hours that sft and rl need, by method.",
        "train.options:CostFlags",
        "train.cost:cost",
    ),
)

GROUPS = (
    Group(
        "knowledge",
        "Search and look after what is known: pairs, kernels, notes, fixes, experience.",
        KNOWLEDGE_COMMANDS,
    ),
    Group(
        "library",
        "Look after the verified kernels that nights over a zoo have made.",
        LIBRARY_COMMANDS,
    ),
    Group(
        "train", "Make a small model that writes kernels: its data, its training.", TRAIN_COMMANDS
    ),
)
