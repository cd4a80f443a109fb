import pytest

from agentkernel.domain.errors import UnknownTarget
from agentkernel.runtime.machine import DeviceProperties, LocalGpu
from agentkernel.tools.targets import (
    DEVICE_NAMES,
    build_target,
    describe,
    find_target,
    load_targets,
    resolve,
)

NAMES = {
    "h100-sxm",
    "h100-pcie",
    "h200",
    "a100-40",
    "a100-80",
    "l4",
    "l40s",
    "rtx4090",
    "rtx5090",
    "b200",
    "mi300x",
}
DENSE_BF16 = {
    "h100-sxm": 989.4,
    "h200": 989.5,
    "a100-80": 312,
    "l4": 121,
    "rtx4090": 165.2,
    "rtx5090": 209.5,
    "b200": 2250,
    "mi300x": 1307.4,
}


def gpu(name="NVIDIA H200", arch="90"):
    return LocalGpu(0, name, arch, 141 * 2**30, "580.1", 1980, 3201, 6144, 700.0, "NVML")


def test_every_packaged_target_loads():
    targets = load_targets()
    assert set(targets) == NAMES == set(DEVICE_NAMES)


def test_aliases_name_one_target_each():
    aliases = [alias for target in load_targets().values() for alias in target.aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & NAMES
    assert find_target("h100").target.name == "h100-sxm"
    assert find_target("A100").target.name == "a100-80"


@pytest.mark.parametrize(("name", "tflops"), DENSE_BF16.items())
def test_peaks_are_dense(name, tflops):
    assert load_targets()[name].peak_tflops["bf16"].value == pytest.approx(tflops)


@pytest.mark.parametrize("target", load_targets().values(), ids=lambda item: item.name)
def test_constants_are_sane_and_sourced(target):
    peaks = {key: item.value for key, item in target.peak_tflops.items()}
    assert peaks["fp64"] < peaks["fp32"] <= peaks["tf32"] <= peaks["bf16"] == peaks["fp16"]
    assert peaks["int8"] >= 2 * peaks["bf16"] * 0.99
    cores = 64 if target.arch == "80" else 128
    derived = target.sm_count.value * cores * 2 * target.clock_mhz.value / 1e6
    if target.vendor == "nvidia":
        assert peaks["fp32"] == pytest.approx(derived, rel=0.05)
        assert target.capability is not None
    assert target.shared_kb_per_block.value <= target.shared_kb_per_sm.value
    copy = target.copy_gb_per_s
    assert copy is None or copy.value < target.dram_gb_per_s.value
    for name in type(target).model_fields:
        value = getattr(target, name)
        for item in value.values() if isinstance(value, dict) else [value]:
            if hasattr(item, "source"):
                assert item.source
                assert item.date[:2] == "20"
                assert item.value > 0


def test_h200_has_the_measured_copy_ceiling():
    assert load_targets()["h200"].copy_gb_per_s.value == 4300


def test_an_unknown_name_gets_the_nearest_and_the_list():
    with pytest.raises(UnknownTarget, match=r"'h1000'.*'h100'.*Known: a100-40.*targets") as caught:
        find_target("h1000")
    assert "\n" not in str(caught.value)
    with pytest.raises(UnknownTarget, match="Known"):
        find_target("zzz")


def test_without_a_gpu_the_default_is_h100_and_says_so(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = find_target(None)
    assert (found.target.name, found.local, found.measurable) == ("h100-sxm", None, False)
    assert "no local GPU" in found.note
    assert "estimated" in found.note
    with pytest.raises(UnknownTarget, match="needs a GPU"):
        find_target("local")


def test_the_same_model_is_measured():
    found = resolve(load_targets()["h200"], gpu())
    assert found.measurable
    assert found.measured_target == found.target
    assert "estimated" not in found.note


def test_another_model_of_the_same_capability_is_measured_and_estimated():
    found = resolve(load_targets()["h100-sxm"], gpu())
    assert found.measurable
    assert (found.target.name, found.measured_target.name) == ("h100-sxm", "h200")
    assert "measured on h200" in found.note
    assert "estimated for h100-sxm" in found.note


def test_another_architecture_is_only_estimated():
    found = resolve(load_targets()["mi300x"], gpu())
    assert not found.measurable
    assert found.measured_target is None
    assert "estimated" in found.note


@pytest.mark.parametrize(
    ("driver_name", "arch", "expected"),
    [
        ("NVIDIA H200", "90", "h200"),
        ("NVIDIA H100 80GB HBM3", "90", "h100-sxm"),
        ("NVIDIA H100 PCIe", "90", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "80", "a100-40"),
        ("NVIDIA A100-SXM4-80GB", "80", "a100-80"),
        ("NVIDIA L4", "89", "l4"),
        ("NVIDIA L40S", "89", "l40s"),
        ("NVIDIA GeForce RTX 4090", "89", "rtx4090"),
        ("NVIDIA B200", "100", "b200"),
        ("AMD Instinct MI300X", "gfx942", "mi300x"),
    ],
)
def test_driver_names_match_their_model(driver_name, arch, expected):
    assert describe(gpu(driver_name, arch)).name == expected


def test_a_model_that_is_not_packaged_is_built_from_queries():
    card = LocalGpu(
        0, "NVIDIA RTX A6000", "86", 48 * 2**30, "580.1", 2100, 8001, 384, 300.0, "NVML"
    )
    found = DeviceProperties(
        card.name, "86", 84, 48 * 2**30, 6 << 20, 102400, 101376, 65536, 1536, 32, 0, 0, 384
    )
    target = build_target(card, found)
    assert target.name == "nvidia-rtx-a6000"
    assert target.dram_gb_per_s.value == pytest.approx(768, rel=0.01)
    assert target.peak_tflops["fp32"].value == pytest.approx(84 * 128 * 2 * 2.1e-3)
    assert target.shared_kb_per_block.value == 99
    assert "NVML" in target.dram_gb_per_s.source


@pytest.mark.gpu
def test_the_local_gpu_is_the_default_and_measurable():
    for name in (None, "local"):
        found = find_target(name)
        assert found.local is not None
        assert found.measurable
        assert found.target == found.measured_target
        assert found.target.arch == found.local.arch
