"""Tools of the MCP server: each starts a command of the command line as a job and reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, ConfigDict, Field

from agentkernel.domain.errors import AgentKernelError, ProblemError
from agentkernel.mcp_server.answers import failure, next_step, page_of, progress_text, status_of
from agentkernel.mcp_server.jobs import Job, Jobs
from agentkernel.mcp_server.workspace import Workspace
from agentkernel.storage.files import RUNS_FOLDER

STARTED_S = 1.2
"""So long a started job is looked at, for mistakes that show at once."""
ANSWERED_S = 55.0
"""So long `show` and `search_knowledge` are waited for; a job after that."""
POLL_S = 0.1
PROGRESS_EACH = 20
"""Polls between two notifications of progress."""
CANCEL_S = 1.5
MOST_LISTED = 20
SOURCE_MOST = 200_000

Short = Annotated[str, Field(max_length=300)]
Words = Annotated[str, Field(max_length=4000)]
Source = Annotated[str, Field(max_length=SOURCE_MOST)]
ModuleFile = Annotated[
    str,
    Field(
        max_length=1024,
        description="FILE with Model, get_inputs and get_init_inputs, or FILE:CLASS with `call`; "
        "inside the workspace.",
    ),
]
RunId = Annotated[str, Field(max_length=128, description="As a tool gave it.")]
Run = Annotated[
    str,
    Field(max_length=1024, description="A run's name, 'last', or the run_id of an optimize."),
]
SameAsRun = Annotated[str, Field(max_length=1024, description="Another name of `run`.")]
SameAsRunId = Annotated[str, Field(max_length=128, description="Another name of `run_id`.")]


class ModuleCall(BaseModel):
    """How a module given as FILE:CLASS is made and called."""

    model_config = ConfigDict(extra="forbid")

    inputs: list[Short] = Field(
        default_factory=list,
        max_length=32,
        description="One each: 'x=f32[4096,8192]', 'ids=i64[8,16]<512'.",
    )
    init: Annotated[Words, Field(description="Constructor arguments: '4096, bias=False'.")] = ""
    kwargs: Annotated[Words, Field(description="Of forward: 'alpha=0.5'.")] = ""


class Rules(BaseModel):
    """The GPU that the kernel is for, and what a candidate may do."""

    model_config = ConfigDict(extra="forbid")

    target: Annotated[Short, Field(description="h100, a100, ...; the local GPU, else h100.")] = ""
    precision: Literal["strict", "tf32", "bf16"] | None = None
    policy: Literal["triton", "mixed", "any"] | None = None


class Budget(BaseModel):
    """When a search ends."""

    model_config = ConfigDict(extra="forbid")

    time: Annotated[Short, Field(description="Wall time: 90s, 10m, 1h.")] = "10m"
    rounds: Annotated[int | None, Field(ge=1, le=100)] = None
    speedup: Annotated[float | None, Field(gt=0, lt=1000, description="Stop there.")] = None


class Tools:
    """The tools over one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.jobs = Jobs(workspace)

    def register(self, server: MCPServer) -> None:
        """Offer each tool under the name of its method."""
        for tool in (
            self.plan,
            self.judge,
            self.profile,
            self.optimize,
            self.search_knowledge,
            self.show,
            self.verify,
            self.apply_check,
            self.status,
            self.result,
            self.cancel,
        ):
            server.add_tool(tool, structured_output=False)

    async def plan(
        self, module: ModuleFile, ctx: Context, call: ModuleCall | None = None, target: Short = ""
    ) -> str:
        """What a module costs and where its time goes: roofline, eager's estimate, segments.
        Starts a run; ask result(run_id)."""
        words = ["plan", *flag("target", target)]
        return await self._begin("plan", words, ctx, module=module, call=call)

    async def judge(
        self,
        module: ModuleFile,
        ctx: Context,
        candidate: Short = "",
        source: Source = "",
        call: ModuleCall | None = None,
        rules: Rules | None = None,
    ) -> str:
        """Judge a candidate (a Python file that defines ModelNew, by path or as `source`) against
        its module in a sandbox. Starts a run; ask result(run_id)."""
        return await self._try("judge", ctx, module, (candidate, source), (call, rules))

    async def profile(
        self,
        module: ModuleFile,
        ctx: Context,
        candidate: Short = "",
        source: Source = "",
        call: ModuleCall | None = None,
        rules: Rules | None = None,
    ) -> str:
        """Judge a candidate, then time it against eager and torch.compile, or estimate without a
        GPU. Starts a run; ask result(run_id)."""
        return await self._try("profile", ctx, module, (candidate, source), (call, rules))

    async def optimize(
        self,
        module: ModuleFile,
        ctx: Context,
        call: ModuleCall | None = None,
        rules: Rules | None = None,
        budget: Budget | None = None,
        target: Annotated[Short, Field(description="As in `rules`.")] = "",
    ) -> str:
        """Search a faster drop-in with the embedded compiler: plan, draft, judge, measure, sign.
        Starts a run of minutes; ask status(run_id) and result(run_id)."""
        limits = budget or Budget()
        with clear_errors():
            rules = with_target(rules, target)
        words = ["optimize", "--json", *flag("runs", str(self.workspace.runs))]
        words += [*rule_flags(rules), *flag("time", limits.time)]
        words += [*flag("rounds", limits.rounds), *flag("speedup", limits.speedup)]
        return await self._begin("optimize", words, ctx, module=module, call=call)

    async def search_knowledge(
        self,
        ctx: Context,
        words: Words = "",
        error: Source = "",
        module: Annotated[str, Field(max_length=1024)] = "",
        kind: Literal["pair", "kernel", "note", "fix", "experience"] | None = None,
        limit: Annotated[int, Field(ge=1, le=10)] = 3,
    ) -> str:
        """Find kernels, notes and fixes by words, by an error's text or by a module's file."""
        command = ["knowledge", "search", *flag("limit", limit), *flag("kind", kind)]
        files = {"error.log": error} if error else {}
        command += ["--error={job}/error.log"] if error else []
        with clear_errors():
            if not (words or error or module):
                raise ProblemError("Give `words`, an `error`'s text or a `module`'s file.")
            command += [f"--module={self.workspace.file(module)}"] if module else []
            command += ["--", words] if words else []
            job = self.jobs.start("search_knowledge", ["agentkernel", *command], files)
        return await self._answer(job, ctx, ANSWERED_S)

    async def show(self, ctx: Context, run: Run = "", run_id: SameAsRun = "") -> str:
        """Show a run ('last' where none is named): its candidates, their verdicts and times, and
        its result. Given an id that search_knowledge shows, such as 'kernels/softmax_row': that
        entry whole."""
        with clear_errors():
            run = given_name(run, run_id) or "last"
            if "/" in run:
                words = ["knowledge", "show", "--", run]
            else:
                words = ["show", f"--runs={self.workspace.runs}", "--", self._run_name(run)]
            job = self.jobs.start("show", ["agentkernel", *words])
        return await self._answer(job, ctx, ANSWERED_S)

    async def verify(
        self,
        ctx: Context,
        run: Annotated[str, Field(max_length=128)] = "",
        certificate: Annotated[str, Field(max_length=1024)] = "",
        run_id: SameAsRun = "",
    ) -> str:
        """Check a certificate (of a run, or a file) and replay its judgement. Starts a run; ask
        result(run_id)."""
        with clear_errors():
            run = given_name(run, run_id)
            if bool(run) == bool(certificate):
                raise ProblemError("Give either `run` or `certificate`.")
            file = certificate or f"{RUNS_FOLDER}/{self._run_name(run)}/certificate.json"
            words = ["verify", "--", str(self.workspace.file(file))]
        return await self._begin("verify", words, ctx)

    async def apply_check(
        self,
        module: ModuleFile,
        ctx: Context,
        run: Run = "",
        call: ModuleCall | None = None,
        run_id: SameAsRun = "",
    ) -> str:
        """Put a run's verified kernel ('last' where none is named) into a model (a module's file)
        and compare the outputs of the whole model with fp64. Starts a run; ask result(run_id)."""
        with clear_errors():
            run = given_name(run, run_id) or "last"
            folder = self.workspace.run_folder(self._run_name(run))
        words = ["apply", f"--run={folder}"]
        return await self._begin("apply_check", words, ctx, module=module, call=call)

    async def status(
        self, run_id: Annotated[str, Field(max_length=128)] = "", run: SameAsRunId = ""
    ) -> str:
        """How far a run is; without run_id the list of runs that tools have started."""
        with clear_errors():
            run_id = given_name(run, run_id)
            if run_id:
                return status_of(self.jobs.find(run_id))
            known = self.jobs.all()[-MOST_LISTED:]
        lines = [f"{job.id}  {job.state()}" for job in reversed(known)] or ["none yet"]
        return "\n".join([*lines, "Next: result(run_id), or plan(module) to begin."])

    async def result(
        self,
        ctx: Context,
        run_id: RunId = "",
        wait_s: Annotated[float, Field(ge=0, le=60, description="Seconds, 60 at most.")] = 0.0,
        page: Annotated[int, Field(ge=1, le=1000)] = 1,
        run: SameAsRunId = "",
    ) -> str:
        """The answer of a run that a tool has started; waits for it up to wait_s seconds,
        60 at most: ask again where it goes on."""
        with clear_errors():
            job = self.jobs.find(given_name(run, run_id))
        return await self._answer(job, ctx, wait_s, page)

    async def cancel(self, run_id: RunId = "", run: SameAsRunId = "") -> str:
        """Interrupt a run; what is finished is kept. Called again on the same run: kill it."""
        with clear_errors():
            job = self.jobs.find(given_name(run, run_id))
            job.cancel()
        with anyio.move_on_after(CANCEL_S):
            while job.state() == "running":
                await anyio.sleep(POLL_S)
        if job.state() != "running":
            return status_of(job)
        return f"run_id: {job.id}  state: running\nIt is ending.\nNext: status, or cancel again."

    def _run_name(self, run: str) -> str:
        """A run's name, looked up where a job's id is given."""
        if run == "last":
            return self.workspace.last_run()
        if run.startswith("optimize-"):
            name = self.jobs.find(run).run_name()
            if name is None:
                raise ProblemError(f"{run!r} has not begun. Next: result({run!r}, wait_s=50).")
            return name
        return self.workspace.run_folder(run).name

    async def _try(
        self,
        tool: str,
        ctx: Context,
        module: str,
        given: tuple[str, str],
        how: tuple[ModuleCall | None, Rules | None],
    ) -> str:
        candidate, source = given
        call, rules = how
        with clear_errors():
            if bool(candidate) == bool(source):
                raise ProblemError("Give either `candidate`, a file, or `source`, its text.")
            path = "{job}/candidate.py" if source else str(self.workspace.file(candidate))
        words = [tool, f"--candidate={path}", *rule_flags(rules)]
        files = {"candidate.py": source} if source else {}
        return await self._begin(tool, words, ctx, module=module, call=call, files=files)

    async def _begin(
        self,
        tool: str,
        words: list[str],
        ctx: Context,
        *,
        module: str = "",
        call: ModuleCall | None = None,
        files: dict[str, str] | None = None,
    ) -> str:
        call = call or ModuleCall()
        with clear_errors():
            words += [f"--input={item}" for item in call.inputs]
            words += [*flag("init", call.init), *flag("kwargs", call.kwargs)]
            words += ["--", self.workspace.reference(module)] if module else []
            job = self.jobs.start(tool, ["agentkernel", *words], files)
        return await self._answer(job, ctx, STARTED_S)

    async def _answer(self, job: Job, ctx: Context, wait_s: float, page: int = 1) -> str:
        """The job's text once it has ended, else how far it is."""
        ended = False
        with anyio.move_on_after(wait_s):
            polls = 0
            while not (ended := job.state() != "running"):
                if polls % PROGRESS_EACH == 0:
                    await ctx.report_progress(job.seconds(), message=progress_text(job))
                polls += 1
                await anyio.sleep(POLL_S)
        if not ended and job.state() == "running":
            return status_of(job)
        if job.state() == "done":
            return page_of(job, page)
        raise ToolError(f"{failure(job)} Next: {next_step(job)}")


@contextmanager
def clear_errors() -> Iterator[None]:
    """Failures that have a line become the tool's error with that line."""
    try:
        yield
    except AgentKernelError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        raise ToolError(f"Cannot use a file: {error.strerror or error}.") from error


def given_name(run: str, run_id: str) -> str:
    """The run that one of two names of an argument names; "" for none. Raises ProblemError."""
    if run and run_id:
        raise ProblemError("Give either `run` or `run_id`.")
    return run or run_id


def with_target(rules: Rules | None, target: str) -> Rules | None:
    """The rules with a `target` that was given beside them, as `plan` takes it. Raises
    ProblemError."""
    if not target:
        return rules
    found = rules or Rules()
    if found.target not in ("", target):
        raise ProblemError(
            f"`target` is {target!r} and that of `rules` {found.target!r}. Give one."
        )
    return found.model_copy(update={"target": target})


def flag(name: str, value: object) -> list[str]:
    """The words of a flag that is given: in one word, so that no value is read as a flag."""
    return [] if value in (None, "") else [f"--{name}={value}"]


def rule_flags(rules: Rules | None) -> list[str]:
    """The flags of what a candidate may do."""
    given = rules or Rules()
    flags = flag("target", given.target) + flag("precision", given.precision)
    return flags + flag("policy", given.policy)
