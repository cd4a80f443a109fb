import pytest

from agentkernel.tools.compile import occupancy
from agentkernel.tools.targets import load_targets


@pytest.mark.parametrize(
    ("target", "registers", "shared", "warps", "share", "limit"),
    [
        # 64 warps an SM. 255 registers -> 8192 a warp, 2 warps a partition of 16384: 8 of 64.
        ("h100-sxm", 255, 0, 8, 8 / 64, "registers"),
        # 32 registers -> 1024 a warp, 16 a partition: all 64 warps.
        ("h100-sxm", 32, 0, 8, 1.0, "warps"),
        # 79 -> 2528, rounded to 2560 a warp; 6 a partition, 24 an SM, 3 blocks of 8.
        ("h100-sxm", 79, 32, 8, 24 / 64, "registers"),
        # 100 KB + 1 KB a block of 228 KB: 2 blocks of 4 warps.
        ("h100-sxm", 32, 100 * 1024, 4, 8 / 64, "shared"),
        # One-warp blocks: 32 of them at most.
        ("h100-sxm", 32, 0, 1, 32 / 64, "blocks"),
        # Ada: 48 warps, 24 blocks; 62 -> 1984 -> 2048 a warp, 8 a partition, 32 an SM.
        ("l4", 62, 32, 8, 32 / 48, "registers"),
        # Ampere: 164 KB; 48 KB + 1 KB a block: 3 blocks of 8 warps.
        ("a100-80", 32, 48 * 1024, 8, 24 / 64, "shared"),
        # CDNA 3: 59 -> 64 of 512 registers, 8 waves on each of 4 SIMDs: all 32.
        ("mi300x", 59, 32, 8, 1.0, "warps"),
        # 128 registers -> 4 waves a SIMD, 16 of 32.
        ("mi300x", 128, 0, 4, 16 / 32, "registers"),
        # All of the LDS: one block of 4 waves.
        ("mi300x", 32, 64 * 1024, 4, 4 / 32, "shared"),
    ],
)
def test_occupancy_agrees_with_hand_computed_cases(target, registers, shared, warps, share, limit):
    found = occupancy(
        load_targets()[target], registers=registers, shared_bytes=shared, num_warps=warps
    )
    assert (found.share, found.limit) == (pytest.approx(share), limit)


def test_more_registers_never_raise_occupancy():
    target = load_targets()["h100-sxm"]
    shares = [
        occupancy(target, registers=count, shared_bytes=0, num_warps=4).share
        for count in range(1, 256)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] > 0
