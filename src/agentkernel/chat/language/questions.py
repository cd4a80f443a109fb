"""Questions of a kernel engineer's hour, and what is never done here, by words of their own.

What is read here changes nothing, so that it is read before the grammar.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentkernel.chat.requests import (
    AskFact,
    AskGpu,
    CandidateRef,
    Cannot,
    Diff,
    Fact,
    Impossible,
    Intent,
    IntentContext,
    OnCandidate,
    OtherModule,
    Plain,
)

Reading = tuple[Intent, ...]
EDGES = re.compile(
    r"^(?:(?:and|so|ok|okay|then|please|pls|hey|hi|well|hmm+|actually|btw|alright|right|oh|but|um"
    r"|uh"
    r"|nah|no wait|(?:i'm )?not (?:happy|satisfied|impressed)[^,]*(?=,)"
    r"|(?:can|could|may) i(?= (?:see|get|have)\b)"
    r"|(?:can|could|would|will) (?:you|we)(?: please)?|let's|let us|just"
    r"|i(?:'d| would) like (?:you )?to|i (?:want|need) (?:you )?to)[, ]+)+"
    r"|(?:[, ]+(?:please|pls|plz|thanks|thx|honestly|lol|for me|now|though|tho|i guess"
    r"|if you can|if possible|while you're at it))+$"
)
"""What people put before and behind a sentence."""

IMPOSSIBLE: tuple[tuple[Impossible, str], ...] = (
    (
        "judge",
        r"\b(?:hack|bypass|cheat|trick|fool|skip|disable|turn off|switch off|weaken|fake|rig|game"
        r"|loosen)\b.{0,16}\b(?:judge|verification|verifier|verifying|correctness checks?)\b",
    ),
    (
        "fleet",
        r"\b(?:watts?|k?wh|dollars?|euros?|usd|co2|carbon|electricity|money|bill|\$)(?!\w).*"
        r"\b(?:cluster|fleet|data ?cent(?:er|re)|(?:per|a|each|every) (?:day|month|year))\b"
        r"|\b(?:cluster|fleet|data ?cent(?:er|re))\b.*"
        r"\b(?:watts?|k?wh|dollars?|euros?|co2|carbon|electricity|money|bill)\b",
    ),
    (
        "condition",
        r"\b(?:and|but|,) if (?:it|that|this|the \w+)(?: |')(?!.*\?$).*\b(?:worse|slower|faster"
        r"|better|fails?|wrong|higher|lower|help\w*)\b.*\b(?:back|undo|revert|keep|discard|drop"
        r"|save|toss)\b",
    ),
    (
        "clocks",
        r"\b(?:over|under)(?:clock|volt)|\b\d+ ?[mg]hz\b"
        r"|\b(?:lock|set|raise|boost|pin|increase|lower|change)\b.{0,20}\b(?:gpu|sm|core|memory"
        r"|its)"
        r" clocks?\b|\b(?:raise|set|lower|change|lift)\b.{0,12}\bpower (?:limit|cap)",
    ),
    (
        "repository",
        r"(?:^|\band |, |\bthen )(?:open|create|make|raise|file|submit|send|draft"
        r"|put up)\b.{0,12}"
        r"\b(?:prs?|mrs?|pull requests?|merge requests?|jira|tickets?|github issues?)\b"
        r"|\b(?:git )?(?:push|commit)\b.{0,24}\b(?:github|gitlab|repo(?:sitory)?|main|master"
        r"|upstream|origin)\b",
    ),
    (
        "message",
        r"^(?:ping|e-?mail|slack|text|notify|message|dm|call|page|sms) (?:me|us|my \w+"
        r"|the team)\b"
        r"|\b(?:on|via|by|over|to) (?:slack|teams|discord|e-?mail|sms|whatsapp|telegram)\b"
        r"|^send (?:it|this|that|the \w+) to (?!the cpu\b|cpu\b|cuda\b)\w+$"
        r"|\bsend (?:me|us|my \w+) an? (?:e-?mail|text|message|sms|notification)\b",
    ),
    (
        "proof",
        r"\b(?:prove|proof|proves|proven)\b.*\b(?:every|all|any|each)\b"
        r"|\bformal(?:ly)? (?:verif\w+|prov\w+|proof)\b|\bmathematical(?:ly)? (?:prov\w+"
        r"|proof)\b",
    ),
    (
        "guarantee",
        r"\b(?:guarantee|promise)\b.*(?:\d ?x\b|\d times\b|faster\b|speed ?up\b|\bany\b"
        r"|\bevery\b)",
    ),
    (
        "training",
        r"^(?:re-?train|fine-?tune|quanti[sz]e|prune|distil?l|sparsify) "
        r"(?:the|my|our|this|a) (?:\w+ )?(?:model|network|net|llm|weights|checkpoint)\b",
    ),
    (
        "language",
        r"\b(?:re-?write|write|port|convert|translate|redo|do|make|generate|emit|give|use"
        r"|want|need"
        r"|switch)\b.*\b(?:cuda c(?:\+\+|pp)?|c\+\+|cutlass|cute ?dsl|raw cuda|hip kernel|opencl"
        r"|vulkan|mojo|pallas|tilelang|thunderkittens|(?:in|to|into|as) (?:plain )?(?:cuda|hip|c"
        r"|rust"
        r"|jax))(?: |$)",
    ),
    (
        "device",
        r"\b(?:tpus?|npus?|ascend|trainium|inferentia|gaudi|cerebras|graphcore|apple silicon|mps"
        r"|intel arc|fpgas?|mac ?books?|metal(?: backend)?|m[1-5] (?:max|pro|ultra))\b",
    ),
    (
        "gpus",
        r"\b(?:on|use|across|over|to|with) (?:two|three|four|eight|several|multiple|many|all|both"
        r"|[2-9]"
        r"|\d\d+) (?:of )?(?:my |our |the )?gpus\b|\bmulti-?gpu\b|\btensor[- ]parallel",
    ),
    (
        "format",
        r"\b(?:export|convert|compile|save|turn|write|build|package)\b.*"
        r"\b(?:onnx|tensorrt|trt engine|torchscript|tflite|coreml|cubin|aot ?inductor"
        r"|shared library)\b",
    ),
    (
        "other_baseline",
        r"\b(?:compare|compares|faster|slower|against|vs|versus|beat|beats|than|fare|stack)\b.*"
        r"\b(?:flash[- ]?attention|flash[- ]?attn|fa[23]|cudnn|xformers|liger|apex|tensorrt"
        r"|onnx ?runtime"
        r"|deepspeed|cutlass|thunderkittens|quack|vllm|transformer engine)\b",
    ),
    (
        "rounding",
        r"\bfast[- ]?math\b|\bapproximat\w+ (?:exp|tanh|gelu|math|div\w*|sqrt|rsqrt|reciprocal)\b"
        r"|\baccumulat\w* in (?:fp16|half|bf16|float16)\b|\b(?:use|try|in|to|with) (?:fp8|fp4"
        r"|int4|mxfp\d)\b|^fp[84] for\b|\baccumulat\w* in \w+,? (?:but|and) (?:store|write|output"
        r"|return)\w* (?:it |the \w+ )?(?:in|as) (?:bf16|fp16|half)\b",
    ),
    (
        "by_hand",
        r"^(?:don't|dont|do not|leave|keep)\b.*\b(?:only|just) (?:fuse|merge|combine)\b"
        r"|^(?:only|just) (?:fuse|merge|combine)\b|^(?:unroll|vectori[sz]e|inline|reorder"
        r"|swizzle|prefetch|hoist|pad|add comments?"
        r"|(?:add|put) a comment|comment|software[- ]pipeline|double[- ]buffer\w*)\b(?!.*\?)"
        r"|^(?:use|try|add|enable) (?:a |the )?(?:tma\b|cp\.async|swizzl\w+|ldmatrix"
        r"|warp speciali[sz]ation|double[- ]buffering|prefetch\w*|async copies"
        r"|vector(?:ized)? loads?)",
    ),
    (
        "graphs",
        r"^(?:use|try|add|enable|turn on|capture|record)\b.{0,20}\bcuda[- ]?graphs?\b"
        r"|^(?:would|will|does|do|could|can|should|is|are)\b.*\bcuda[- ]?graphs?\b",
    ),
    (
        "by_hand",
        r"^(?:fuse|split (?:it|this|the kernel) (?:in|into)\b|use (?:one|two|a single|1"
        r"|2) kernels?\b"
        r"|one program per|cache the|keep the \w+ in (?:registers|shared|smem)|recompute|reload"
        r"|(?:do|use|make|write) a (?:one|two|single|multi)[- ]pass|online softmax)\b(?!.*\?)"
        r"|^(?:write|add|generate|create)\b.*\b(?:unit tests?|tests|docstrings?|readme"
        r"|documentation|docs|benchmark script)\b|^document (?:it|this|the)\b",
    ),
    (
        "module",
        r"^(?:change|remove|add|delete)\b.*\b(?:activation|bias|layers?|dropout|residual|softmax"
        r"|architecture|the model|weights|heads?|loss|epsilon|eps)\b",
    ),
    (
        "shared",
        r"^(?:use |take |needs? )?(?:less|lower|reduce|cut|shrink|halve|fewer"
        r"|minimi[sz]e)\b(?: the)?"
        r"(?: \w+ of)? (?:shared|smem)\b",
    ),
    (
        "shell",
        r"^(?:rm -|sudo\b|apt(?:-get)?\b|pip\b|conda\b|reboot\b|git (?:status|log|diff"
        r"|pull)\b)"
        r"|^(?:run|open|start|launch|use) (?:nvidia-smi|ncu|nsys|nsight\b|bash|a shell|pytest|gdb"
        r"|cuda-gdb"
        r"|compute-sanitizer)"
        r"|^(?:install|update|upgrade|downgrade|free|reset)\b.*\b(?:triton|torch|pytorch|cuda"
        r"|drivers?"
        r"|python|packages?|gpu)\b",
    ),
    (
        "machine",
        r"^(?:what|which|whats|what's)\b.*\b(?:triton|cuda|torch|pytorch|driver|python|ptxas)\b"
        r"(?: toolkit)? (?:versions?|is this|is installed|is it|do (?:i|we|you) have)"
        r"|^(?:what|which) versions? of (?:triton|cuda|torch|pytorch|python)\b",
    ),
    (
        "foresight",
        r"^(?:would|will|could|should|do you think|does it help|is it worth)\b.*\b(?:warps?"
        r"|stages?"
        r"|blocks?|tiles?|registers?|tensor cores|persistent|split-?k|unrolling)\b.*\b(?:help"
        r"|helps|faster"
        r"|better|matter|matters|hurt|worth|improve|change anything|make a difference)\b",
    ),
    (
        "tolerance",
        r"\btoleran(?:ce|ces|t)\b.*\b\d|\b\d\S* toleran(?:ce|ces|t)\b|\b[ra]tol\b"
        r"|\b1e-\d+ (?:is|would be|will) (?:fine|ok|okay|enough|do|good)",
    ),
    (
        "other_run",
        r"^(?:compare|how|is|are|was|did|does|what|which|vs|versus|put|show|and|today)\b.*"
        r"\b(?:compare|stack|versus|vs|better|faster|slower|against|differ\w*|than|with)\b.*"
        r"\b(?:yesterday|last (?:night|week|month|session)|(?:previous|earlier|other"
        r"|older) session"
        r"|an? (?:earlier|older|other|previous) run)\b",
    ),
)  # fmt: skip
"""What is never done here, by the words that ask for it."""

QUESTIONS: tuple[tuple[Fact, str], ...] = (
    (
        "speed",
        r"^(?:is|are) (?:it|that|this|we|c\d+)\b.*\b(?:faster|slower|quicker|beat\w*|ahead)\b.*"
        r"\b(?:torch\.?compile|inductor|max-autotune) or\b"
        r"|^(?:what|how) about (?:the )?(?:max-autotune|torch\.?compile|inductor)(?: mode)?\??$"
        r"|\bmeasured or (?:only |just )?estimated\b|\b(?:real|actual) (?:hardware|gpu|device)\b"
        r"|\bactually (?:measured|timed)\b|^(?:what|which)\b.*\b(?:timed?|measured?"
        r"|benchmark\w*)\b"
        r".*\b(?:on|against)$|^how (?:long does|fast is|quick is) (?:it|one call|a call|this|c\d+"
        r"|the kernel)\b(?: take| run| now)*$|^(?:the )?(?:run ?)?time in [um]s$",
    ),
    (
        "repeatable",
        r"^(?:is|are) there (?:an? |any |some )?atomics?\b|\b(?:identical|same"
        r"|equal) (?:results?|outputs?|answers?|bits|values)\b.*"
        r"\b(?:each|every|time|runs?|call)\b|\bstable (?:from )?run[- ]to[- ]run\b",
    ),
    (
        "checked",
        r"^(?:is|does|did|do|will) the judge\b.*\b(?:check|test|look|cover|handle|verif|try)\w*\b"
        r"|^(?:what about|how about|what if|did you (?:test|try|check)|does it handle)\b.*"
        r"\b(?:nans?|infs?|infinit\w+|denormals?|zeros|subnormals?|outliers)\b",
    ),
    (
        "holds",
        r"^(?:which|what) (?:sizes?|dims?|dimensions?|shapes?|axes)\b.*\b(?:change|vary|dynamic"
        r"|free|baked|fixed|recompil\w*)\b"
        r"|^(?:make|keep|leave|let)\b.*\b(?:batch\w*|seq\w*|hidden|sizes?|shapes?|dims?|lengths?)"
        r"\b.*\b(?:dynamic|free|variable|vary)\b"
        r"|^(?:does|do|is|are|will)\b.*\b(?:dropout|batch ?norm)\b.*\b(?:train\w*|eval)\b"
        r"|^(?:eval|inference|forward)(?: mode)?(?: only| is)\b.*\b(?:fine|ok|okay|enough"
        r"|all i)\b"
        r"|\b(?:i|we) never train\b"
        r"|^(?:does|do|is|are)\b.*\b(?:mask\w*|guard\w*)\b.*\b(?:tail|edges?|remainder|bounds)\b"
        r"|^what if (?:the |my |our )?(?:m|n|k|batch\w*|seq\w*|hidden|length)\b"
        r"|^can (?:i|we|the|my)\b.*\b(?:sizes?|shapes?|batch|lengths?|seq\w*)\b.*"
        r"\b(?:change|vary|differ|grow|shrink)\b|^can (?:i|we) (?:change|vary) (?:the"
        r"|my) (?:batch|seq\w*"
        r"|sizes?|shapes?|lengths?)\b"
        r"|^(?:is|are)\b.*\b(?:hard-? ?coded|baked in|speciali[sz]ed)\b",
    ),
    (
        "use",
        r"\bstate_?dicts?\b|^(?:does|do|can|will)\b.*\bload\w*\b.*\b(?:checkpoints?|weights)\b"
        r"|^(?:does|do|can|will)\b.*\b(?:checkpoints?|weights)\b.*\bload\w*\b"
        r"|^(?:only|just) (?:the )?(?:(?:first|last) \d+ )?layers? ?\d*\b"
        r"|^(?:apply|deploy|integrate|install) (?:it|this|that|c\d+)\b|^use (?:it|this"
        r"|c\d+) in my\b"
        r"|^what do (?:i|we) (?:need|have) to import\b",
    ),
    (
        "accuracy",
        r"^is eager\b.*\b(?:closer|nearer|more accurate|better|worse|further)\b.*\bthan (?:we"
        r"|it|us"
        r"|this|ours|c\d+)\b|^(?:what|which) (?:[ra]tol|tolerance)\b|^how (?:big|large|small"
        r"|high|low|bad|far off) "
        r"(?:is|are|was|were) (?:the|its) (?:\w+ )?(?:errors?|err)\b"
        r"|^(?:is|are|does)\b.*\bbit[- ]?(?:exact|identical|wise|for[- ]bit)\b.*\beager\b",
    ),
    (
        "package",
        r"\b(?:export|make|build|package|turn|publish|ship|wrap|convert|need|want)\b.*\b(?:wheel"
        r"|whl"
        r"|pip package|pypi|hugging ?face|(?:the )?hub|torch[. _-]?library|custom op)\b",
    ),
    (
        "use",
        r"\b(?:usage|use) example\b|\bexample of (?:how to use|using|its use)\b",
    ),
    (
        "resources",
        r"^(?:did|does) (?:it|that|this)(?: make it)?(?: now)? spill\b"
        r"|^why (?:is|are|does|so)\b.*\b(?:occupancy|registers?|spill\w*|shared memory|smem)\b",
    ),
    (
        "least_error",
        r"\b(?:which|what) (?:candidate|one|version|kernel|of them)\b.*\b(?:lowest|least|smallest"
        r"|best)\b.{0,16}\b(?:errors?|err|accuracy)\b"
        r"|\b(?:which|what)\b.*\bmost (?:accurate|precise)\b",
    ),
    (
        "timing",
        r"^(?!.*\b(?:accura\w*|errors?|correct\w*|energy)\b)"
        r"how (?:did|do|does|is|was|were|are) (?:you|it|this|that|they|we|the judge|c\d+)\b"
        r"(?: \w+)? ?\b(?:timed?|measured?|benchmark(?:ed)?)\b(?! (?:on|against))"
        r"|\b(?:warm|cold) (?:cache|l2)\b|^how many (?:reps|repetitions|iterations|warm-?ups?)\b",
    ),
    (
        "fusion",
        r"^how many (?:kernels|launches)\b.*\b(?:before|forward|eager|instead)\b|\b(?:which"
        r"|what) (?:op|operation|operator|kernel|layer|step)s?\b.{0,24}\b(?:fused?"
        r"|merged?"
        r"|combined?)\b|\bwhat (?:got|is|was|did (?:you|it)) fused?\b"
        r"|^why (?:are there |do we need |is it |use |only |just )?(?:one|two|three|four|several"
        r"|many"
        r"|so many|more than one|\d) (?:separate )?(?:kernels|kernel|launches)\b",
    ),
    (
        "checked",
        r"\bhow (?:did|does|do|was|is|were) (?:the judge|you|it|this|that|we|c\d+|they)\b"
        r"(?: \w+)? ?\b(?:check|verif|test|judg|validat)(?:y|e|ed|ied)?\b"
        r"|\bwhat (?:did|does) the judge (?:check|test|look at|do|try)\b"
        r"|\b(?:non[- ]?|not |isn't |aren't )contiguous\b|\btransposed (?:view|input)s?\b"
        r"|\bstrided (?:inputs?|views?|tensors?)\b|^(?:does|do|must|has|is)\b.*\bcontiguous\b"
        r"|^(?:what|which) (?:shapes|sizes|inputs|dtypes|values|cases)\b.*\b(?:test|check|judg"
        r"|verif)"
        r"|\bsafe to (?:ship|use|deploy)\b|\bproduction[- ]ready\b",
    ),
    (
        "holds",
        r"\b(?:break|breaks|work|works|fail|fails|crash|handles?|ok|fine|valid|hold|holds"
        r"|happens?"
        r"|what if|support|supports)\b.*\b(?:multiples? of|divisible by|powers? of (?:2|two)"
        r"|odd (?:sizes?|lengths?|shapes?)|ragged|(?:un|mis|not )aligned)\b"
        r"|^what happens (?:with|at|if|when|for)\b.*\b(?:batch|seq\w*|length|sizes?|shapes?|empty"
        r"|n|m"
        r"|rows)\b"
        r"|^(?:does|do|can|will) (?:it|this|c\d+|the kernel) (?:handle|support|accept|cope with"
        r"|work (?:with|for))\b.*\b(?:empty|zero|batch(?:es)?|dynamic|odd|any|large|long|short"
        r"|other|variable|sizes?|shapes?|lengths?|inputs|dims?|fp16|bf16|fp32|half|training"
        r"|grad\w*)\b",
    ),
    (
        "noise",
        r"\b(?:numbers?|timings?|times|results?|figures) (?:look|seem|are|is)s? (?:\w+ )?(?:noisy"
        r"|unstable|jittery)\b|^(?:what|how)\b.*\b(?:variance|spread|std|standard deviation"
        r"|jitter)\b|\b(?:is|it|isn't|just|only|within|be|pure|measurement"
        r"|timing) (?:the )?noise\b"
        r"|\berror bars?\b"
        r"|\bconfidence (?:interval|band)s?\b|\bstatistically significant\b"
        r"|\b(?:more|extra|additional) (?:reps?|repetitions?|repeats?|samples|timing runs)\b"
        r"|^(?:re-?(?:time|benchmark|measure)|(?:time|benchmark|measure) (?:it|this"
        r"|that)? ?(?:again|once more"
        r"|anew))\b|\b\d+ (?:reps|repetitions)\b|^(?:run|repeat) the benchmark\b",
    ),
    (
        "whole_model",
        r"\b(?:gain|speed ?up|faster|improvement|win|impact|effect|difference|time|latency"
        r"|save)\b.*"
        r"\b(?:end[- ]to[- ]end|e2e|(?:whole|full|entire) (?:model|network))\b"
        r"|\b(?:end[- ]to[- ]end|e2e|(?:whole|full|entire)[- ](?:model|network))\b.*"
        r"\b(?:gain|speed ?up|faster|improvement|impact|effect)\b",
    ),
    (
        "use",
        r"^(?:how (?:do|can|would|should) (?:i|we) )?(?:swap|patch|plug|drop|put|insert|slot"
        r"|stick|wire|hook|replace)\b (?:(?:it|this|that|them"
        r"|the kernel|the result|c\d+) )(?:only )?(?:in|into|inside)\b(?! an? (?:\w+ )?file)"
        r"|^(?:how (?:do|can|would|should) (?:i|we) )?replace (?:every|all|each)\b.*\bwith (?:it"
        r"|this|that)\b",
    ),
    (
        "accumulate",
        r"^(?!.*\b(?:bf16|tf32)\b).*\baccumulat\w*\b.*\b(?:fp32|float32|f32|fp64"
        r"|full precision)\b"
        r"|^(?:what|which|how|does|is)\b.*\baccumulat\w*\b",
    ),
    (
        "autotune",
        r"^(?:do not|don't|dont|no|without|never|does|do|is|are|will|disable|turn off|skip"
        r"|remove)\b"
        r"(?!.*torch).*(?<!max-)(?<!max )\bauto-?tun(?:e|es|ed|ing|er)\b",
    ),
    (
        "accuracy",
        r"^(?:then )?(?:tell|show|give) me (?:the |its )?(?:max |new )?(?:errors?|err"
        r"|accuracy)\b.*"
        r"\b(?:after|afterwards|once|when|done)\b",
    ),
    (
        "assembly",
        r"^(?:dump|show|give|print|get|display|see|look at|let me see|i want|disassemble)\b.*"
        r"\b(?:ptx|sass)\b|\bvectori[sz]ed\b.*\?|\b(?:ld|st)\.global\b|\bcoalesced?\b.*\?"
        r"|\b(?:hmma|hgmma|imma|ldmatrix|cp\.async|tma)\b.*\?|\bbank conflicts?\b",
    ),
)  # fmt: skip
"""Questions by words that only they have."""
WALK = re.compile(
    r"(?:walk|talk|step|take|guide|lead) me through (?:it|this|that|the (?:kernel|code|triton"
    r"|source"
    r"|candidate))\b|explain (?:it|this|the (?:kernel|code)) (?:like|as if|to me like)\b"
)
ROOM = re.compile(
    r"\b(?:anything|something|much|more|any speed) left (?:to gain|on the table|to win)\b"
    r"|\bhead ?room\b|\btheoretical (?:best|minimum|peak|limit|optimum)\b|\bspeed of light\b"
)
SUMMARY = re.compile(
    r"tl;? ?dr\b|(?:in|as) (?:a nutshell|one (?:line|sentence))\b|(?:a |the |give me |show me )*"
    r"(?:short |quick |brief )*summary of (?:the |this |my )?(?:last |latest )?run$"
)
KERNEL_ONLY = re.compile(
    r"(?:show |give |print |see )?(?:me )?(?:just |only )?the (?:triton |actual )?kernels?"
    r"(?: functions?| code| source| body| itself)?(?: only| alone)?(?: of c\d+)?"
    r"(?:,? (?:not|without|no|skip|minus) (?:the )?(?:wrapper|class|module|rest|launcher"
    r"|host code"
    r"|boilerplate|imports)s?)?$"
)
ALONE = re.compile(r"\b(?:just|only|alone|not|without|no|skip|minus)\b")
FILE = re.compile(r"(?<![\w/.])((?:~?/)?(?:[\w.-]+/)*[\w-]+\.py)(?::([A-Za-z_]\w*))?(?![\w/])")
CLASS = re.compile(r"\bclass ([A-Z]\w*)|\b([A-Z]\w*) (?:class|module)\b")
BEGIN = re.compile(
    r"(?:optimi[sz]e|speed up|make|take|tune|accelerate|work on|open|load|do|try"
    r"|same (?:thing )?for"
    r"|now|next)\b"
)
WRITES = re.compile(
    r"\b(?:save|write|export|store|put|keep|dump|copy|not|don't|dont|never|compare|line|diff)\b"
)
SAME_FOR = re.compile(r"(?:do |and |now )*the same (?:thing )?(?:for|with)\b|same (?:thing )?for\b")
CAMEL = re.compile(r"\b([A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+|[A-Z]{2,}[A-Za-z0-9]*[a-z]\w*)\b")
GPU_ASKED = re.compile(
    r"(?:would|will|does|do|is|how|what|what's|whats|could|can|should)\b.*\b(?:win|wins|faster"
    r"|slower"
    r"|hold up|run|perform|do (?:it )?on|fit|fits|behave|work|beat|compare|fare|look|like|get"
    r"|expect"
    r"|scale|fast|time|speed ?up|worth|go|gain|numbers?|figures?|performance|limits?)\b"
)
BUILDS = re.compile(
    r"(?:build|make|compile|generate|give|create|target|optimi[sz]e|tune)\b.*\band\b"
)
"""How a wish for several targets begins."""
GPU_AGAIN = re.compile(r"(?:and |what about |how about |or )*(?:on )?(?:an? |the )?([\w-]+)$")
SHARED = re.compile(r"(\d+(?:\.\d+)?) ?k(?:i?b)?\b.*\b(?:smem|shared)|\b(?:smem|shared).*?(\d+) ?k")


DOCS = re.compile(r"\b(?:docs?|documentation|manual|handbook|paper|colleague|boss|friend)\b")
"""What is asked of somebody else, or told of them."""


WISHED_TOO = re.compile(
    r"[.?!] (?:please |then |and )*(?:i (?:want|need)|use|try|set|make|run|stop|keep|save|undo)\b"
)
"""A wish in a sentence behind the first, which an answer to that alone would drop."""


class Said(NamedTuple):
    """A sentence as typed, and in lower case without what people put around it."""

    shown: str
    text: str
    asked: bool


def said(shown: str) -> Said:
    """What the tables are searched in."""
    text = " ".join(shown.lower().replace("’", "'").replace("w/o", "without").split())
    bare = text.rstrip(" ?.!")
    for _ in range(2):
        bare = EDGES.sub("", bare)
    return Said(shown, bare, text.endswith("?"))


def read_questions(shown: str, context: IntentContext) -> Reading:
    """What changes nothing: facts, another GPU, another module, what is never done here."""
    what = said(shown)
    if DOCS.search(what.text):
        return ()
    if WISHED_TOO.search(what.text):
        return ()
    several = _several(what)
    if several:
        return several
    for read in (_module, _impossible, _gpu, _question):
        found = read(what, context)
        if found is not None:
            return (found,)
    return ()


def _several(what: Said) -> Reading:
    """A question that has its answer in two places, and a stop with another file behind it."""
    text = what.text
    if re.search(
        r"\bsure\b.*\d ?x\b.*\breal\b|\btoo good to be true\b|\bcached the outputs?\b", text
    ):
        return (AskFact(about="noise"), AskFact(about="checked"))
    if re.match(r"(?:is|are)\b.*\b(?:launch|overhead)[- ]bound\b.*\bcuda graphs?\b", text):
        return (OnCandidate(name="why_slow"), Cannot(about="graphs"))
    if re.match(r"how much (?:of (?:the|my) )?budget\b.*\b(?:left|remains?|remaining)\b", text):
        return (Plain(name="cost"), Plain(name="settings"))
    file = FILE.search(what.shown)
    if file and re.search(r"\bstop\b.*\bwrong file\b.*\bi meant?\b", text):
        return (Plain(name="stop"), OtherModule(path=file[1], class_name=file[2]))
    return ()


def _impossible(what: Said, _: IntentContext) -> Intent | None:
    if re.match(r"(?:what|which) (?:[ra]tol|tolerance)\b", what.text):
        return None
    for about, pattern in IMPOSSIBLE:
        if re.search(pattern, what.text):
            return Cannot(about=about)
    return None


def _question(what: Said, _: IntentContext) -> Intent | None:
    text = f"{what.text}?" if what.asked or "?" in what.text else what.text
    for about, pattern in QUESTIONS:
        if re.search(pattern, text):
            file = about == "use" and FILE.search(what.shown)
            return None if file else AskFact(about=about, candidate=_candidate(what.text))
    if re.match(r"why\b.*\b(?:block size|tile|tiles|warps|stages|config\w*|schedule)\b", text):
        return Plain(name="plan")
    if re.match(
        r"how (?:many|much) (?:[gt]b/s|[gt]b per second|t?flops)|.*\bbandwidth\b.*\?", text
    ):
        return OnCandidate(name="roofline", candidate=_candidate(what.text))
    if ROOM.search(what.text):
        return OnCandidate(name="roofline", candidate=_candidate(what.text))
    if re.match(r"rank (?:them|all|the candidates|candidates)\b", text):
        return Plain(name="tree")
    if re.match(r"(?:is|are)\b.*\b(?:launch|latency|overhead)[- ]bound\b", text):
        return OnCandidate(name="why_slow", candidate=_candidate(what.text))
    if re.match(r"(?:so )?what (?:did|have) (?:you|it)\b.*\bchanged?\b.*\b(?:my|original)\b", text):
        return Diff(candidate=_candidate(what.text), against="original")
    if re.match(r"why\b[^\d,]*\bslow\w*\b (?:at|on|for|with|in|when)\b(?!.*\band\b)\D*$", text):
        return OnCandidate(name="why_slow", candidate=_candidate(what.text))
    if re.match(r"what (?:can you|are you able to|could you) (?:change|tune|set)\b", text):
        return Plain(name="help")
    if re.match(r"what (?:else|more) (?:is|can|could)\b.*\b(?:left|try|tried|do)\b", text):
        return Plain(name="ideas")
    if re.match(r"what(?:'s| is| does)\b.*\bblock_[mnk]\b.*\b(?:doing|do|for)\b", text):
        return OnCandidate(name="explain_kernel", candidate=_candidate(what.text))
    if WALK.match(what.text):
        return OnCandidate(name="explain_kernel", candidate=_candidate(what.text))
    if KERNEL_ONLY.match(what.text) and ALONE.search(what.text):
        return OnCandidate(name="show_kernel", candidate=_candidate(what.text))
    return Plain(name="status") if SUMMARY.match(what.text) else None


def _candidate(text: str) -> CandidateRef:
    found = re.search(r"\b(?:c|candidate )([1-9]\d{0,5})\b", text)
    return int(found[1]) if found else "current"


def find_target(text: str, context: IntentContext) -> str | None:
    """The first GPU that is named."""
    return next(iter(_targets(text, context)), None)


def _targets(text: str, context: IntentContext) -> tuple[str, ...]:
    """The GPUs that are named, each once."""
    words = re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", text)
    named = [word for word in words if word in context.targets and word != "local"]
    return tuple(dict.fromkeys(named))


def _gpu(what: Said, context: IntentContext) -> Intent | None:
    """ "would it still win on an A100?", and after it "what about b200"."""
    target = find_target(what.text, context)
    if target is None:
        return None
    last = context.last[-1] if context.last else None
    if isinstance(last, AskGpu) and GPU_AGAIN.match(what.text):
        return AskGpu(target=target, shared_kb=last.shared_kb)
    shared = SHARED.search(what.text)
    if what.asked and shared:
        return AskGpu(target=target, shared_kb=float(shared[1] or shared[2]))
    if len(_targets(what.text, context)) > 1 and BUILDS.match(what.text) and not what.asked:
        return Cannot(about="targets")
    begins = said(what.shown).text
    asked = what.asked or re.search(r"\bon (?:an? |the )?[\w-]+(?: without\b.*)?$", what.text)
    return AskGpu(target=target) if asked and GPU_ASKED.match(begins) else None


def _module(what: Said, context: IntentContext) -> Intent | None:
    """ "optimise layers/rmsnorm.py", "same thing for GroupNorm in that file"."""
    if WRITES.search(what.text.replace("don't touch", "").replace("dont touch", "")):
        return None
    file = FILE.search(what.shown)
    named = CLASS.search(what.shown)
    name = (named[1] or named[2]) if named else None
    faster = not what.text.startswith("make") or re.search(
        r"\b(?:faster|quicker|fast$|quick$)", what.text
    )
    if file and faster and BEGIN.match(what.text):
        return OtherModule(path=file[1], class_name=file[2] or name)
    camel = CAMEL.search(what.shown)
    if SAME_FOR.match(what.text) and (name or camel):
        last = context.last[-1] if context.last else None
        path = last.path if isinstance(last, OtherModule) else None
        return OtherModule(path=path, class_name=name or (camel[1] if camel else None))
    return None
