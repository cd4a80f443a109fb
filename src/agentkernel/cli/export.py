"""`agentkernel export`: a run's kernel as a package of its own."""

from __future__ import annotations

from agentkernel.cli.configuration import runs_path
from agentkernel.cli.export_options import ExportFlags
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.swap.export import export_run
from agentkernel.tools.run_store import find_kernel_run


def export(flags: ExportFlags) -> None:
    """`agentkernel export`."""
    folder = find_kernel_run(runs_path(flags.runs, flags.settings), flags.run)
    done = export_run(folder, flags.form.value, flags.out)
    if flags.as_json:
        print_json({"path": str(done.path), "use": done.use})
        return
    print_plain(f"wrote {done.path}, the kernel of run {folder.name}")
    print_plain(f"use it  {done.use}")
