"""`agentkernel serve`: the judge and the profiler over HTTP."""

from __future__ import annotations

import os
from importlib import import_module

import typer

from agentkernel.bench.sample import cache_folder
from agentkernel.cli.coding_agents import require_sdk
from agentkernel.cli.configuration import settings_from
from agentkernel.cli.options import settings_of
from agentkernel.cli.serve_options import ServeFlags
from agentkernel.cli.terminal import collector_off, print_plain
from agentkernel.domain.settings import Settings
from agentkernel.runtime.machine import local_gpu, visible_devices
from agentkernel.serving.pool import LocalPool, Pool, devices_for
from agentkernel.serving.submission_queue import Queue
from agentkernel.storage.files import data_folder
from agentkernel.tools.targets import find_target

INTERRUPTED = 130


def serve(flags: ServeFlags) -> None:
    """`agentkernel serve`."""
    require_sdk("serve")
    settings = settings_from(flags.configured, settings_of(flags))
    with collector_off():
        server = import_module("agentkernel.serving.server")
    asked = server.ServeRequest(
        host=flags.host,
        port=flags.port,
        state=flags.state or data_folder() / "serve",
        token_file=flags.token_file,
        most_queued=flags.queue,
        settings=settings,
        place=_place(flags, settings),
    )
    try:
        server.serve(asked, lambda queue: _pool(flags, queue), print_plain)
    except KeyboardInterrupt:  # the server has said what is kept
        raise typer.Exit(INTERRUPTED) from None


def _pool(flags: ServeFlags, queue: Queue) -> Pool:
    """Who judges: a cluster where one is named, else processes of this machine."""
    if flags.ray is not None:
        ray_pool = import_module("agentkernel.serving.ray_pool")
        pool: Pool = ray_pool.RayPool(queue, flags.ray, flags.workers)
        return pool
    devices = devices_for(flags.workers, visible_devices(), len(os.sched_getaffinity(0)))
    return LocalPool(queue, devices, cache_folder() / "locks")


def _place(flags: ServeFlags, settings: Settings) -> str:
    """Where submissions are judged, as their identity and people have it. Raises UnknownTarget."""
    find_target(settings.target)
    if flags.ray is not None:
        return f"the Ray cluster at {flags.ray}"
    gpu = local_gpu()
    return "the CPU, interpreted" if gpu is None else gpu.name
