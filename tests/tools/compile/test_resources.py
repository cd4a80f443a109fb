from agentkernel.tools.compile.occupancy import USAGE, amdgcn_facts

AMD = """
  v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
    .private_segment_fixed_size: 24
    .vgpr_count:     97
"""


def test_amd_facts_come_from_the_metadata():
    facts = amdgcn_facts(AMD)
    assert (facts.registers, facts.spill_bytes, facts.tensor_core) == (97, 24, "mfma")


def test_amd_facts_are_unknown_without_metadata():
    facts = amdgcn_facts("s_endpgm")
    assert (facts.registers, facts.spill_bytes, facts.tensor_core) == (None, None, None)


def test_usage_line_of_cuobjdump_is_read():
    line = "  REG:255 STACK:1384 SHARED:1024 LOCAL:8 CONSTANT[0]:960 TEXTURE:0 SURFACE:0"
    found = USAGE.search(line)
    assert (found["registers"], found["stack"], found["local"]) == ("255", "1384", "8")
