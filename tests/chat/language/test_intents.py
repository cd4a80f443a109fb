"""Does the small grammar understand what is asked, and refuse the rest?"""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from agentkernel.chat.language import EXAMPLES, understand
from agentkernel.chat.language.grammar import VALUES, read_only_requests, rows
from agentkernel.chat.language.tagging import correct_spelling, entries, spelled_number
from agentkernel.chat.requests import (
    Ambiguous,
    AskDocs,
    AskGpu,
    Cannot,
    Intent,
    IntentContext,
    IntentName,
    NotUnderstood,
    OnCandidate,
    SetKnob,
    SetPrecision,
    Understood,
    WriteTo,
)

TARGETS = ("a100", "a100-40", "a100-80", "b200", "h100", "h100-pcie", "h100-sxm", "h200", "l4",
           "l40s", "mi300x", "rtx4090", "4090", "rtx5090", "5090")  # fmt: skip
CONTEXT = IntentContext(targets=TARGETS, candidates=(1, 2, 3, 4, 5), current=4)
UNDERSTOOD = [
    ("what I actually deploy on is an L4, optimise for that", "target target=l4"),
    ("our cluster has H200s", "target target=h200"),
    ("our real traffic has batch 8, use that", "shapes sizes=[{'name': 'batch', 'value': 8}]"),
    (
        "batch size should be 64 not 16",
        "shapes sizes=[{'name': 'batch', 'value': 64}]",
    ),
    ("seq len 4k please", "shapes sizes=[{'name': 'seq_len', 'value': 4096}]"),
    ("use a batch of thirty two", "shapes sizes=[{'name': 'batch', 'value': 32}]"),
    ("twenty-five minutes max", "budget seconds=1500.0"),
    ("give it an hour and a half", "budget seconds=5400.0"),
    ("never go over 12 GB of device memory", "memory_limit max_bytes=12884901888"),
    ("don't take more than ten minutes", "budget seconds=600.0"),
    ("10 minutes max, or until you hit 2.5x", "budget seconds=600.0; stop_at speedup=2.5"),
    ("forget bf16, use tf32", "precision precision=tf32"),
    ("hop over to the splitk branch", "switch_branch branch=splitk"),
    ("move me back onto main", "switch_branch branch=main"),
    ("save candidate 3 to c3.py", "save candidate=3 path=c3.py"),
    ("keep 3 and save it to build/ln.py", "keep candidate=3; save path=build/ln.py"),
    ("line 12 looks odd to me. explain?", "explain_line line=12"),
    ("before you start: which steps do you intend to take?", "plan"),
    ("before we go on, what's the plan?", "plan"),
    ("check it against the reference", "verify"),
    ("it doesn't have to be only triton", "policy policy=mixed"),
    ("I care about joules, not milliseconds", "less_energy"),
    ("use half precision inputs", "dtype dtype=float16"),
    ("allow tf32 and run again", "precision precision=tf32; run"),
    ("don't use tf32", "precision precision=strict"),
    ("don't use tf32 and bf16", "precision precision=strict"),
    ("bf16, not tf32", "precision precision=bf16"),
    ("use bf16 instead of tf32", "precision precision=bf16"),
    ("not tf32 but bf16", "precision precision=bf16"),
    ("no tf32", "precision precision=strict"),
    ("turn tf32 off", "precision precision=strict"),
    ("tf32 is not allowed", "precision precision=strict"),
    ("is tf32 allowed?", "settings"),
    ("are we using tf32", "settings"),
    ("could you use tf32 please", "precision precision=tf32"),
    ("you may use bfloat16", "precision precision=bf16"),
    ("don't use tf32 use bf16", "precision precision=bf16"),
    ("switch from tf32 to bf16", "precision precision=bf16"),
    ("go back to full precision", "precision precision=strict"),
    ("please keep memory under 4 GB", "memory_limit max_bytes=4294967296"),
    ("I only have 512 MiB", "memory_limit max_bytes=536870912"),
    ("half the memory", "less_memory fraction=0.5"),
    ("cut peak memory by 30%", "less_memory fraction=0.7"),
    ("don't use more than 8 gigs", "memory_limit max_bytes=8589934592"),
    ("it uses too much memory", "less_memory"),
    ("make it 2x faster and stop", "stop_at speedup=2.0; stop"),
    ("stop once it's twice as fast", "stop_at speedup=2.0"),
    ("get it below 50 us", "stop_at runtime_us=50.0"),
    ("run until 1.5x", "stop_at speedup=1.5; run"),
    ("run for 10 minutes", "run seconds=600.0"),
    ("5 more rounds", "run rounds=5"),
    ("spend at most half an hour", "budget seconds=1800.0"),
    ("no more than 20 rounds", "budget rounds=20"),
    ("stop after 10 minutes", "budget seconds=600.0"),
    ("at most $5", "budget usd=5.0"),
    (
        "run it on the h200 in bf16 with batch size 64",
        "target target=h200; precision precision=bf16; "
        "shapes sizes=[{'name': 'batch', 'value': 64}]; run",
    ),
    ("now for an A100", "target target=a100"),
    ("for the rtx 4090", "target target=rtx4090"),
    ("use 4096x4096 inputs", "shapes shapes=[[4096, 4096]]"),
    (
        "try batch 8, 16 and 32",
        "shapes sizes=[{'name': 'batch', 'value': 8}, {'name': 'batch', 'value': 16}, "
        "{'name': 'batch', 'value': 32}]",
    ),
    ("set seq length to 2048", "shapes sizes=[{'name': 'seq_length', 'value': 2048}]"),
    ("fp16 inputs please", "dtype dtype=float16"),
    ("what's the bottleneck?", "why_slow"),
    ("why isn't it faster?", "why_slow"),
    ("why is c3 slower than c2?", "compare first=3 second=2"),
    ("which is faster, c2 or c3?", "compare first=2 second=3"),
    ("compare c2 with c5", "compare first=2 second=5"),
    ("how does c3 compare to the original?", "compare first=3 second=original"),
    ("diff c1 and c3", "diff candidate=3 against=1"),
    ("what changed since c2?", "diff against=2"),
    ("what's different between c4 and the original", "diff candidate=4 against=original"),
    ("show c3", "show_candidate candidate=3"),
    ("show me the source", "show_candidate"),
    ("c3", "show_candidate candidate=3"),
    ("back to the fastest", "return_to candidate=fastest"),
    ("go back to c2, not c3", "return_to candidate=2"),
    ("undo", "undo"),
    ("undo two steps", "undo steps=2"),
    ("take that back", "undo"),
    ("redo", "redo"),
    ("start over", "restart"),
    ("what would you try next?", "plan"),
    ("what other ideas do you have?", "ideas"),
    ("try another approach", "try_idea idea=next"),
    ("try something else", "try_idea idea=next"),
    ("split from c2", "fork candidate=2"),
    ("switch to branch 2", "switch_branch branch=2"),
    ("accept c3", "keep candidate=3"),
    ("I like it, keep it", "keep"),
    ("discard c3", "reject candidate=3"),
    ("drop candidate 4", "reject candidate=4"),
    ("stop", "stop"),
    ("bye", "quit"),
    ("only your own kernels", "policy policy=triton"),
    ("allow cublas", "policy policy=mixed"),
    ("no library calls", "policy policy=triton"),
    ("without cublas", "policy policy=triton"),
    ("policy triton", "policy policy=triton"),
    ("how much did this cost?", "cost"),
    ("save it to out/Fast.py", "save path=out/Fast.py"),
    ("save it", "save"),
    ("export the session", "export"),
    ("search the docs for split-K", "ask_docs query=split-K"),
    ("what do the docs say about tl.dot?", "ask_docs query=tl.dot"),
    ("look up eviction policies in the docs", "ask_docs query=eviction policies"),
    ("what's the plan", "plan"),
    ("fix it", "repair"),
    ("fix the error in c3", "repair candidate=3"),
    ("yes", "approve"),
    ("no", "decline"),
    ("yes, go ahead", "approve"),
    ("is c3 correct?", "verify candidate=3"),
    ("verify c3", "verify candidate=3"),
    ("show the certificate", "certificate"),
    ("help", "help"),
    ("how's it going?", "status"),
    ("where are we?", "status"),
    ("which gpus do you support?", "targets"),
    ("what precision are we using?", "settings"),
    ("edit line 12", "edit line=12"),
    ("let me edit the kernel", "edit"),
    ("what does line 12 do?", "explain_line line=12"),
    ("explain lines 4 to 9", "explain_line line=4 last_line=9"),
    ("explain the third candidate", "explain_kernel candidate=3"),
    ("walk me through this kernel", "explain_kernel"),
    ("why was c3 rejected?", "why_rejected candidate=3"),
    ("why did it fail?", "why_rejected"),
    ("how close are we to the roofline?", "roofline"),
    ("optimise for energy", "less_energy"),
    ("optimize for latency", "lower_latency"),
    ("go", "run"),
    ("do not stop", "run"),
    ("tf32", "precision precision=tf32"),
    ("agressive please, push harder", "more_aggressive"),
    ("shwo the histroy", "history"),
    ("give me 5 more rounds", "run rounds=5"),
    ("Could you squeeze the VRAM footprint down a bit please", "less_memory"),
    ("be bolder", "more_aggressive"),
    ("take more risks this time", "more_aggressive"),
    ("go wild", "more_aggressive"),
    ("let's push this further", "more_aggressive"),
    ("I'm fine with tf32", "precision precision=tf32"),
    ("bf16 is ok for me", "precision precision=bf16"),
    ("relax the precision to bf16", "precision precision=bf16"),
    ("we can live with bfloat16 accuracy", "precision precision=bf16"),
    ("back to strict precision please", "precision precision=strict"),
    ("no reduced precision anymore", "precision precision=strict"),
    ("I want exact results again", "precision precision=strict"),
    ("go back to fp32", "precision precision=strict"),
    ("retarget this to a B200", "target target=b200"),
    ("compile it for mi300x", "target target=mi300x"),
    ("switch GPU", "target"),
    ("try different input sizes", "shapes"),
    ("change the input shape to (8, 1024, 4096)", "shapes shapes=[[8, 1024, 4096]]"),
    ("what is slowing it down?", "why_slow"),
    ("what's holding this kernel back?", "why_slow"),
    ("why so slow?", "why_slow"),
    ("what's the limiting factor here", "why_slow"),
    ("is it memory bound or compute bound?", "roofline"),
    ("Which part takes the most time?", "profile"),
    ("show me a profile", "profile"),
    ("break down the runtime for me", "profile"),
    ("where are the milliseconds being spent?", "profile"),
    ("what have you tried so far?", "history"),
    ("list everything you attempted", "history"),
    ("give me a summary of what you did", "history"),
    ("what experiments did you run", "history"),
    ("walk me through what this kernel does", "explain_kernel"),
    ("how does this kernel work?", "explain_kernel"),
    ("what does this code do", "explain_kernel"),
    ("can you describe candidate 2 to me?", "explain_kernel candidate=2"),
    ("what's going on in line 42?", "explain_line line=42"),
    ("what is line 17 for?", "explain_line line=17"),
    ("I don't understand line 8", "explain_line line=8"),
    ("show what changed", "diff"),
    ("what did you change?", "diff"),
    ("how does it differ from the original?", "diff against=original"),
    ("let me see the patch", "diff"),
    ("show differences between c1 and c4", "diff candidate=4 against=1"),
    ("revert to candidate 2", "return_to candidate=2"),
    ("let's go back to c1", "return_to candidate=1"),
    ("restore the third candidate", "return_to candidate=3"),
    ("return to #3", "return_to candidate=3"),
    ("I want version 3 back", "return_to candidate=3"),
    ("can we roll back to c3 please", "return_to candidate=3"),
    ("go with your second suggestion", "try_idea idea=2"),
    ("let's try idea 2", "try_idea idea=2"),
    ("implement the third idea", "try_idea idea=3"),
    ("start a new branch from here", "fork"),
    ("fork this", "fork"),
    ("branch off at c2", "fork candidate=2"),
    ("this one is good, accept it", "keep"),
    ("ship it", "keep"),
    ("lock it in", "keep"),
    ("looks good, keep it", "keep"),
    ("you can stop when it's twice as fast", "stop_at speedup=2.0"),
    ("2x is enough", "stop_at speedup=2.0"),
    ("two times faster is good enough", "stop_at speedup=2.0"),
    ("stop as soon as you hit a 2x speedup", "stop_at speedup=2.0"),
    ("don't bother going past 2x", "stop_at speedup=2.0"),
    ("quit once we reach 3x", "stop_at speedup=3.0"),
    ("aim for 1.8x", "stop_at speedup=1.8"),
    ("I need at least a 1.5x speedup", "stop_at speedup=1.5"),
    ("undo that last change", "undo"),
    ("oops, go back one", "undo"),
    ("never mind, revert that", "undo"),
    ("bring it back", "redo"),
    ("scrap everything and start over", "restart"),
    ("which candidate is the fastest?", "status"),
    ("what's the best so far?", "status"),
    ("how fast is c3?", "status"),
    ("make it faster", "run"),
    ("how much faster is it?", "fact about=speed"),
    ("what is the speedup over eager", "fact about=speed"),
    ("is it faster now?", "fact about=speed"),
    ("how much faster is it than eager?", "fact about=speed"),
    ("how many tokens have you used?", "cost"),
    ("what's this costing me?", "cost"),
    ("don't spend more than 2 dollars", "budget usd=2.0"),
    ("you have 15 minutes", "budget seconds=900.0"),
    ("limit yourself to 10 rounds", "budget rounds=10"),
    ("give it an hour", "budget seconds=3600.0"),
    ("write the result to ./kernels/fast.py", "save path=./kernels/fast.py"),
    ("save as softmax_fast.py", "save path=softmax_fast.py"),
    ("dump the kernel to a file", "save"),
    ("what can you do?", "help"),
    ("am I close to the hardware limit?", "roofline"),
    ("how much headroom is left?", "roofline"),
    ("prove that c3 is right", "verify candidate=3"),
    ("double-check the correctness", "verify"),
    ("can I trust this result?", "verify"),
    ("show me proof that it's correct", "certificate"),
    ("no torch ops please, triton only", "policy policy=triton"),
    ("can it call cublas?", "settings"),
    ("feel free to use cudnn", "policy policy=mixed"),
    ("mixed policy", "policy policy=mixed"),
    ("make it pass", "repair"),
    ("c3 crashes, fix it", "repair candidate=3"),
    ("repair the broken kernel", "repair"),
    ("why did c2 fail?", "why_rejected candidate=2"),
    ("what's wrong with c3?", "why_rejected candidate=3"),
    ("I want to edit the source myself", "edit"),
    ("open c3 in my editor", "edit candidate=3"),
    ("what will you do next?", "plan"),
    ("what's next?", "plan"),
    ("do you have any other ideas?", "ideas"),
    ("carry on", "run"),
    ("keep going", "run"),
    ("run it", "run"),
    ("run this please", "run"),
    ("one more time please", "run"),
    ("try again", "run"),
    ("please optimise my module", "run"),
    ("cancel", "stop"),
    ("pause for a moment", "stop"),
    ("never mind", "decline"),
    ("thanks, bye", "quit"),
    ("nope", "decline"),
    ("sure, do it", "approve"),
    ("I approve", "approve"),
    ("absolutely not", "decline"),
    ("show me the tree of candidates", "tree"),
    ("list the candidates", "tree"),
    ("c4 is rubbish, throw it away", "reject candidate=4"),
    ("save power", "less_energy"),
    ("reduce energy consumption", "less_energy"),
    ("minimise latency", "lower_latency"),
    ("could you lower the memory footprint and then show me the diff please", "less_memory; diff"),
    (
        "allow tf32, then run again, and stop at 2x",
        "precision precision=tf32; run; stop_at speedup=2.0",
    ),
    ("for a100 in bf16", "target target=a100; precision precision=bf16"),
    ("let us allow tf32", "precision precision=tf32"),
    ("have you tried bf16?", "history"),
    ("stop using bf16", "precision precision=strict"),
    ("is c3 the fastest?", "status"),
    ("was tf32 used?", "settings"),
    ("Can you be a bit more daring with the optimisations please", "more_aggressive"),
    ("Don't hold back, try riskier transformations.", "more_aggressive"),
    ("I'm tight on memory", "less_memory"),
    ("My card only has 8GB so stay below that", "memory_limit max_bytes=8589934592"),
    ("TensorFloat-32 is acceptable", "precision precision=tf32"),
    ("you're allowed to drop to bfloat16", "precision precision=bf16"),
    ("Go back to exact fp32 numerics.", "precision precision=strict"),
    ("Return to the strict tolerance", "precision precision=strict"),
    ("No more tf32.", "precision precision=strict"),
    ("Same thing but for an A100 please", "target target=a100"),
    ("I'll deploy this on an H200 instead", "target target=h200"),
    ("Can you optimise for the L4 now please", "target target=l4"),
    ("use a sequence length of 4096", "shapes sizes=[{'name': 'sequence_length', 'value': 4096}]"),
    ("My inputs are actually 2048 by 2048", "shapes shapes=[[2048, 2048]]"),
    ("What's making it so slow?", "why_slow"),
    ("Why are we not getting a better speedup?", "why_slow"),
    ("why does this take so long?", "why_slow"),
    ("Where is the bottleneck?", "why_slow"),
    ("what dominates the runtime?", "profile"),
    ("Which kernel eats most of the time?", "profile"),
    ("Give me a timing breakdown", "profile"),
    ("Remind me which approaches have already been tested", "history"),
    ("What did you do up to now?", "history"),
    ("what failed so far?", "why_rejected"),
    ("Talk me through the kernel", "explain_kernel"),
    ("What's the purpose of line 23?", "explain_line line=23"),
    ("I don't get this line, what is it doing?", "explain_line"),
    ("Could you explain what happens on line 10 of c2?", "explain_line line=10 candidate=2"),
    ("Show me what's different from the original code", "diff against=original"),
    ("What did you modify compared to the baseline?", "diff against=original"),
    ("Put c2 and c4 side by side", "compare first=2 second=4"),
    ("Let's return to the third one", "return_to candidate=3"),
    ("I prefer candidate 2", "return_to candidate=2"),
    ("Restore c1", "return_to candidate=1"),
    ("Give your second suggestion a go", "try_idea idea=2"),
    ("The second idea sounds promising, try it", "try_idea idea=2"),
    ("Try idea number two", "try_idea idea=2"),
    ("Let's branch here", "fork"),
    ("Create a fork at this point", "fork"),
    ("From here, split into two", "fork"),
    ("I'm happy with this one", "keep"),
    ("Accept this version.", "keep"),
    ("Good enough, let's ship it", "keep"),
    ("Stop when you've doubled the speed", "stop_at speedup=2.0"),
    ("Once you hit 2x you can stop", "stop_at speedup=2.0"),
    ("No need to go beyond 2x", "stop_at speedup=2.0"),
    ("I only need a factor of two", "stop_at speedup=2.0"),
    ("Twice as fast is all I need, then stop", "stop_at speedup=2.0; stop"),
    ("abort the search", "stop"),
    ("that's all for today", "quit"),
    ("show me what the plan is", "plan"),
    ("how far are we from peak?", "roofline"),
    ("how much time is left?", "status"),
    ("use at most 20 minutes", "budget seconds=1200.0"),
    ("is the result verified?", "verify"),
    ("revert", "undo"),
    ("rollback to the previous candidate", "return_to candidate=previous"),
    ("use the library for matmul", "policy policy=mixed"),
    ("you can use cublas for the gemm", "policy policy=mixed"),
    ("never use cublas", "policy policy=triton"),
    ("I don't want any library calls", "policy policy=triton"),
    ("print candidate 4's source", "show_candidate candidate=4"),
    ("list all candidates with their times", "tree"),
    ("what is the current speedup?", "status"),
    ("try again with a different seed", "more_aggressive"),
    ("try harder", "more_aggressive"),
    ("do another 3 rounds", "run rounds=3"),
    ("use 10 rounds", "run rounds=10"),
    ("undo the last two steps", "undo steps=2"),
    ("c2 vs c5", "compare first=2 second=5"),
    ("how much memory does c3 use?", "profile candidate=3"),
    ("what's the peak memory?", "profile"),
    ("it's not correct, fix it", "repair"),
    ("there's a NaN, please fix", "repair"),
    ("debug this", "repair"),
    ("start from scratch", "restart"),
    ("I don't want bf16", "precision precision=strict"),
    ("forget about tf32", "precision precision=strict"),
    ("how do I use this?", "help"),
    ("keep c3 and discard c4", "keep candidate=3; reject candidate=4"),
    ("switch to strict and go on", "precision precision=strict; run"),
    ("not less than 2x", "stop_at speedup=2.0"),
    ("show c4's code", "show_candidate candidate=4"),
    ("speedup 1.5", "stop_at speedup=1.5"),
    ("not the h100 but the h200", "target target=h200"),
]
ASKED_BACK = [
    ("don't keep it", "reject"),
    ("do not accept c3", "reject candidate=3"),
    ("never accept c3", "reject candidate=3"),
    ("use fp16", "dtype dtype=float16"),
    ("it's too slow", "more_aggressive | why_slow"),
    ("what are my options?", "ideas | help"),
    ("tf32 and bf16 are both fine", "precision precision=tf32 | precision precision=bf16"),
]
REFUSED = [
    "for an L40",
    "what does L4 do?",
    "before you start: undo that",
    "there's no need for tf32",
    "no, tf32",
    "what is love",
    "buy milk and run",
    "if it is slower, go back",
    "never run",
    "would tf32 help?",
    "should I use tf32?",
    "I never said to use bf16",
    "don't go back",
    "don't show me the diff",
    "without changing the precision, go faster",
    "did you undo that?",
    "which one used less memory, c1 or c2?",
    "please don't throw c3 away",
    "not c3",
    "why don't you use tensor cores?",
    "the weather is nice",
    "keep c3 and c4",
    "don't stop at 2x",
    "don't stop until 3x",
    "less aggressive",
    "use more memory if you need",
    "do not use less memory",
    "don't be more aggressive",
    "don't use the h200",
    "don't fork",
    "do not stop at 2x",
    "don't save it",
    "do not undo that",
    "don't try idea 2",
    "don't quit",
    "never restart",
    "don't go back to c3",
]


def rendered(intent: Intent) -> str:
    values = intent.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    return " ".join([intent.name, *(f"{key}={value}" for key, value in values.items())])


@pytest.mark.parametrize(("text", "wanted"), UNDERSTOOD)
def test_understood(text: str, wanted: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Understood)
    assert "; ".join(map(rendered, found.intents)) == wanted


@pytest.mark.parametrize(("text", "wanted"), ASKED_BACK)
def test_asked_back(text: str, wanted: str) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Ambiguous)
    options = ("; ".join(map(rendered, option)) for option in found.options)
    assert " | ".join(options) == wanted


@pytest.mark.parametrize("text", REFUSED)
def test_not_guessed(text: str) -> None:
    found = understand(text, CONTEXT)
    if isinstance(found, Understood):
        assert all(item.name in read_only_requests() for item in found.intents)
    if isinstance(found, NotUnderstood):
        assert found.reason
        assert found.nearest


@pytest.mark.parametrize(("name", "example"), EXAMPLES.items())
def test_each_example_asks_for_its_own_request(name: IntentName, example: str) -> None:
    found = understand(example, CONTEXT)
    assert isinstance(found, Understood)
    assert [intent.name for intent in found.intents] == [name]


def test_every_request_has_an_example() -> None:
    names = {name for part in get_args(IntentName) for name in get_args(part) or (part,)}
    assert names == set(EXAMPLES) | {"cannot"}
    assert len(names) >= 35


def test_the_grammar_uses_only_concepts_that_exist() -> None:
    known = frozenset[str]().union(*entries().values()) | VALUES | {"PLACE", "HALF"}
    assert {concept for row in rows() for concept in row.known} <= known


def test_a_candidate_that_does_not_exist_is_said() -> None:
    found = understand("go back to candidate 9", CONTEXT)
    assert isinstance(found, NotUnderstood)
    assert found.reason == "There is no candidate c9. Known: c1, c2, c3, c4, c5."


def test_any_number_is_taken_where_the_candidates_are_not_known() -> None:
    found = understand("go back to candidate 9", IntentContext())
    assert isinstance(found, Understood)
    assert rendered(found.intents[0]) == "return_to candidate=9"


def test_the_other_of_two_is_a_number() -> None:
    found = understand("go back to the other one", IntentContext(candidates=(1, 2), current=2))
    assert isinstance(found, Understood)
    assert rendered(found.intents[0]) == "return_to candidate=1"


def test_a_name_that_several_targets_begin_with_is_asked_back() -> None:
    found = understand("for the a100", IntentContext(targets=("a100-40", "a100-80")))
    assert isinstance(found, Ambiguous)
    assert [rendered(option[0]) for option in found.options] == [
        "target target=a100-40",
        "target target=a100-80",
    ]


def test_a_path_stays_as_it_was_typed() -> None:
    text = "save it to 'Out dir/$(rm -rf) Fast.py'"
    found = understand(text, CONTEXT)
    assert found == Understood(intents=(WriteTo(name="save", path="Out dir/$(rm -rf) Fast.py"),))


def test_a_query_stays_as_it_was_typed() -> None:
    found = understand("Search the docs for TMA Descriptors and tf32", CONTEXT)
    assert found == Understood(intents=(AskDocs(query="TMA Descriptors and tf32"),))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("histroy", "history"),
        ("memry", "memory"),
        ("bottlenek", "bottleneck"),
        ("shwo", "show"),
        ("expect", None),
        ("share", None),
        ("kep", None),
    ],
)
def test_spelling(word: str, meant: str | None) -> None:
    assert correct_spelling(word) == meant


@pytest.mark.parametrize(
    ("words", "value", "used"),
    [
        ("thirty two", 32, 2),
        ("a hundred", None, 0),
        ("hundred and twenty eight inputs", 128, 4),
        ("two thousand and forty eight", 2048, 5),
        ("one two", 1, 1),
        ("two and three", 2, 1),
        ("twenty minutes", 20, 1),
        ("many", None, 0),
    ],
)
def test_numbers_in_words(words: str, value: int | None, used: int) -> None:
    found = spelled_number(words.split())
    assert (found.value, found.used) == (value, used) if found else value is None


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, agentkernel.chat.language\n"
        "print({'torch', 'langgraph', 'triton'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def test_praise_before_a_request_is_no_value_of_it() -> None:
    found = understand("perfect, use it in my model", CONTEXT)
    assert not (isinstance(found, NotUnderstood) and "comment" in found.reason)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("can you use bf16?", SetPrecision(precision="bf16")),
        ("could you try 4 stages?", SetKnob(knob="stages", value=4)),
        ("can we go back to c2?", OnCandidate(name="return_to", candidate=2)),
        ("what about 8 warps?", SetKnob(knob="warps", value=8)),
        ("how about tf32?", SetPrecision(precision="tf32")),
    ],
)
def test_a_question_changes_nothing_and_offers_what_it_asks_about(text: str, asked: Intent) -> None:
    found = understand(text, CONTEXT)
    assert isinstance(found, Ambiguous)
    assert found.asked
    assert found.options == ((asked,),)
    told = understand(f"{text[:-1]} please", CONTEXT)
    assert told == Understood(intents=(asked,))


def test_a_question_about_the_future_offers_the_knob() -> None:
    found = understand("what if I used 4 warps?", CONTEXT)
    assert found == Understood(
        intents=(Cannot(about="foresight"),), offers=(SetKnob(knob="warps", value=4),)
    )


def test_a_question_about_another_gpu_sets_no_target() -> None:
    found = understand("could it run on an h200?", CONTEXT)
    assert found == Understood(intents=(AskGpu(target="h200"),))
