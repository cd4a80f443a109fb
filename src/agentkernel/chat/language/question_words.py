"""Words by which a question is known, or what is never done here; lower case, edges cut off."""

from __future__ import annotations

from agentkernel.chat.requests import Fact, Impossible

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
        r"|intel arc|fpgas?|mac ?books?|metal(?: backend)?|m[1-5] (?:max|pro|ultra))\b"
        r"|^(?:will|would|does|do|can|could|is|are|what about|how about)\b(?!.*\bmi ?\d)"
        r".*\b(?:on|for|with|about|support\w*)\b.*\b(?:amd|radeon|rocm)\b",
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
        r"^(?:can|could|should|may) (?!i\b|we\b|you\b)(?:the |this |that |my )?\w+(?: \w+){0,3}?"
        r" be (?:folded|fused|merged|inlined|hoisted|combined|absorbed|moved) "
        r"(?:in|into|with|out)\b",
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
        r"|^how much (?:faster|quicker) (?:is|are|did)\b(?!.*\bc?\d)|^is (?:it|this|that) (?:any )?"
        r"(?:faster|quicker)(?: yet| already| now)?\??$"
        r"|^what(?:'s| is| are) (?:the|its|our) speed ?ups?\b(?!.*\bc?\d)"
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
        r"^how (?:did|do|does|is|was) .{2,12}\bmeasur\w+\b.*\b(?:accura\w*|errors?)\b",
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
        r"|^(?:only|just) (?:the )?(?:(?:first|last) \d+ layers?|layers? \d+)\b"
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
        r"|\b(?:warm|cold) (?:cache|l2)\b|^how many (?:reps|repetitions|warm-?ups?)\b",
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

DTYPE = (
    r"(?:b?fp?(?:8|16|32|64)|b?float(?:8|16|32|64)|half(?:[- ]precision)?"
    r"|(?:single|double)[- ]precision|u?int(?:8|16|32|64))"
)
IT = (
    r"(?:it|this|that|c\d+|(?:the |this |that |my |our )?(?:current )?(?:kernel|candidate|drop-?in"
    r"|module|layer|one))"
)
INPUTS = (
    r"(?:inputs?|tensors?|activations?|arguments?|args?|data|values?|weights?|parameters?|params?)"
)
TAKES = (
    r"(?:do|work|run|handle|support|accept|take|cope|hold|be (?:called|used|run|fed)|good|ok|okay"
    r"|fine|valid|usable|right|safe|limited|restricted|compatible|judged|verified|made|meant|written)"
)
TAKEN = r"(?:supported|accepted|handled|ok|okay|fine|allowed|possible|valid)"
NOT_OF_DTYPES = (
    r"^(?!.*\b(?:fast\w*|slow\w*|quick\w*|speed\w*|accura\w*|errors?|accumulat\w*|overflow\w*"
    r"|memory|worth|help\w*|better|worse|cores?|sums?|outputs?|returns?|stores?|tested|checked"
    r"|comput\w+)\b)"
)
HOW_TO = r"^(?:how (?:do|can|could|would|should|to)\b|is there (?:a|any|some) way\b|what do i do)"
MODEL = r"\b(?:model|network|net|code|project|pipeline|program|layers?)\b"
PUT_IN = (
    r"(?:it|this|that|them|c\d+|(?:all |the |your |my |these )+(?:\w+ )?(?:kernels?|drop-?ins?"
    r"|candidates?))"
)
SLOW_OR_FAST = (
    r"(?:fast\w*|slow\w*|quick\w*|speed\w*|beat\w*|win\w*|worth|help\w*|better|worse|ahead"
    r"|accura\w*|errors?)"
)
TRAINING = r"(?<![-\w])(?:train|trains|training|fine-?tun(?:e|es|ing))\b"
TRAINS_WITH = (
    rf"^(?!.*\b(?:{SLOW_OR_FAST}|weights?|checkpoints?|memory)\b)"
    r"(?:how|can|could|may|should|is|does|do|will|would|use|put)\b.*"
    rf"(?:\b(?:us(?:e|ed|ing|able)|put|plug|apply|applied|insert|install|drop|import|run|call)"
    rf"\b.*{TRAINING}|{TRAINING} (?:\w+ )*(?:with|on|through) {IT}\b)"
)
"""Questions about training with a kernel, and not about the training of a model."""
COMPILE = r"(?:\btorch[. _]?compil(?:e|ed|er|ing)\b|\bdynamo\b|\bgraph[- ]?breaks?\b)"
UNDER_COMPILE = (
    rf"^(?!.*\b(?:{SLOW_OR_FAST}|than|vs|versus|compar\w+|against|timed?|measur\w*|baselines?)\b)"
    r"(?:does|do|will|would|is|are|can|could|may|should|what (?:happens|if|about)"
    r"|how (?:do|does|can|could|should|would|will))\b"
    r"(?=.*(?:\b(?:works?|support\w*|compatib\w*|friendly|runs? (?:with|in)|stands?|sits?|lives?"
    r"|goes|plays?|holds?|surviv\w*|break\w*|fails?|trac(?:e|es|ed|ing|eable)|compos\w*|combin\w*"
    r"|handl\w*|inside|under|within|top|around|wrap\w*|put|happens|causes?)\b"
    r"|\b(?:i|we|to)(?: still| also)? (?:use )?torch[. _]?compile|\bcompile (?:it|this|the|my)\b))"
    rf".*{COMPILE}"
)
"""Whether a kernel may stand inside of torch.compile, and not which of them is the faster."""
MACHINE = r"(?:machines?|box(?:es)?|servers?|hosts?|computers?|workstations?|nodes?|clusters?)"
ON_A_GPU = (
    r"(?:\b(?:on|with|using) (?:(?:a|an|the|my|our|your|some|real|actual|physical|own|local|nvidia"
    r"|cuda|remote|cloud|lab|proper|[abhl]\d{1,3}s?) )*"
    rf"(?:gpus?\b|hardware\b|(?:gpu )?{MACHINE}\b)"
    rf"|\b(?:another|other|different|remote) (?:\w+ )?{MACHINE}\b|\bthere$|\bremotely\b|\bssh\b)"
)
FOR_REAL = (
    r"\b(?:for real|really|properly|actually|truly|in (?:reality|earnest)|on real hardware)\b"
)
MEASURE_ELSEWHERE = (
    rf"^(?:please |can you |could you |now )*(?:measure|time|benchmark) {IT} {ON_A_GPU}"
    r"(?: please)?$"
    r"|^(?:(?:i|we|my|our|there)\b[^,.;:!?]*[,.;:!?]+ (?:and |so |but )*)?"
    r"(?:how (?:(?:do|can|could|would|should|might) (?:i|we|you|one)|(?:can|could) (?:it|this) be"
    r"|to)\b|(?:can|could|may) (?:i|we)\b"
    r"|is there (?:a|any|some) way\b|where (?:do|can|could) (?:i|we)\b)"
    rf"(?:.*\b(?:measure\w*|time|timed|benchmark\w*|profile|bench|run|test|try)\b.*{ON_A_GPU}"
    r"|.*\bget\b.*\b(?:real|actual|measured) (?:times?|timings?|numbers?|measurements?|figures?)\b"
    r"|.*\b(?:measure|time|benchmark) (?:it|this|c\d+)$"
    rf"|.*\b(?:(?:measure|time|benchmark) {IT} (?:.* )?{FOR_REAL}"
    rf"|{FOR_REAL} (?:measure|time|benchmark)\b)"
    r"|.*\bget (?:it|this|c\d+) (?:measured|timed|benchmarked)\b|.*\bget an? measurement\b"
    rf"|.*\b(?:use|reach|connect|point|attach)\b.*\b(?:remote (?:gpu|{MACHINE})|ssh"
    rf"|(?:on|to) another {MACHINE})\b)"
)
"""How a time is measured where there is a GPU."""
ESTIMATE = r"\W?\b(?:estimat(?:e|es|ed|ion|ions)|estimated times?)\b\W?"
ESTIMATE_MEANT = (
    rf"^(?:what (?:does|do|did)\b.*{ESTIMATE}.*\b(?:mean|stand for|say|tell|rest on)\b.*"
    rf"|what do you mean (?:by|with) (?:an? |the )?{ESTIMATE}"
    rf"|what(?:'s| is| are) (?:an? |meant (?:by|with) (?:an? |the )?)?{ESTIMATE}(?: here)?$"
    rf"|(?:what(?:'s| is)|explain|define) (?:the )?(?:(?:meaning|sense) of |word |term )+{ESTIMATE}"
    rf"|what(?:'s| is| are) (?:the|an|this|that|your|these) {ESTIMATE} (?:based|made|built|from)\b"
    rf"|(?:how|where)\b.*\b(?:is|are|was|were|do|does|did)\b.*{ESTIMATE}(?: (?:made|computed"
    r"|calculated|derived|obtained|work|come)| from)*$"
    rf"|how (?:good|accurate|reliable|exact|precise|sure|trustworthy|close|far off) (?:is|are) "
    rf"(?:the|this|that|your|these|an|its) {ESTIMATE}"
    r"|(?:can|should) (?:i|we) (?:trust|believe|rely on) (?:the|this|that|your|these|an) "
    rf"{ESTIMATE}"
    rf"|why (?:is|are|was|were)? ?(?:it|this|that|they|the \w+|c\d+)? ?(?:only |just |merely )*"
    rf"(?:an )?{ESTIMATE}$)"
)
"""What an estimate is and what it rests on; its value is another question."""
SAFE = (
    rf"^(?:(?:is|are) {IT} (?:really |actually |completely |truly )*(?:safe|trustworthy"
    r"|production[- ]ready)|is it (?:really |actually )?safe to (?:use|ship|deploy|run"
    r"|keep|release|trust) (?:it|this|c\d+))"
    r"(?: (?:to (?:use|ship|deploy|run|keep|release|hand over)|for production|in production|as is"
    r"|enough|or not))*$"
)
"""Whether a candidate may be trusted, which wants no list of calls."""
AT_ITS_SIZE = (
    rf"^(?:is|was|did (?:you|the judge)|have you) (?:{IT} )?(?:\w+ )?(?:correct|right|judged|tested"
    rf"|verified|checked|test|judge|check|verify|run)(?: {IT})?(?: too| also)? (?:for|at|on|with) "
    r"(?:exactly )?(?:the|my|our|its|that|this) (?:\w+ )?(?:sizes?|shapes?|dims?|dimensions?)\b"
)
"""Whether the sizes that were given are among those that were judged."""
LAUNCH_IN_TIME = (
    r"^(?:is|are|does|do|did|was|were)\b(?=.*\b(?:us|times?|estimates?|numbers?|figures?)\b).*"
    r"\b(?:incl\w*|contain\w*|counted|count|part of)\b.*"
    r"\b(?:launch\w*|overhead)\b"
)
"""Whether the launches are in a time."""
BIGGER = (
    rf"^(?!.*\b(?:{SLOW_OR_FAST}|memory|blocks?|tiles?|grid|warps?|stages?|kernels?|takes?|time)\b)"
    r"(?:what (?:would|will|does|do|happens?|about|of|if|changes?)|how (?:about|would|will|does|do)"
    rf"|(?:does|do|will|would|can|could|is) {IT}|with|on|for|at)\b.*"
    r"(?:\b(?:bigger|larger|smaller|longer|shorter|greater|wider|huge) (?:\w+ )?(?:inputs?|batch\w*"
    r"|shapes?|sizes?|seq\w*|lengths?|tensors?|rows|images?|matri\w+|dim\w*)(?:,? say .*)?$"
    r"|\b(?:inputs?|batch\w*|shapes?|sizes?|seq\w*|lengths?|tensors?|rows)\b (?:\w+ ){0,3}?"
    r"(?:bigger|larger|smaller|longer|shorter|as (?:big|large|long|small)|doubl\w+|tripl\w+)\b)"
)
"""What becomes of it at other sizes, asked in one of these ways or with a question mark."""
OF_INPUTS = r"(?:inputs?|input tensors?|input data|arguments?)"
INPUTS_NOW = (
    r"^(?:how (?:big|large|long|wide) (?:is|are) (?:the |my |our |its |these )?(?:current )?"
    rf"(?:{OF_INPUTS}|batch(?: size)?)"
    r"|what(?:'s| is| are) (?:the |my |our |its )?(?:current )?(?:inputs|input (?:shapes?|sizes?"
    rf"|dim\w*)|(?:shapes?|sizes?|dim\w*) of (?:the |my |our |its |all )?{OF_INPUTS}|batch size)"
    r"|(?:what|which) (?:sizes?|shapes?|dim\w*) (?:is|are|do|does|has|have) (?:the |my |our "
    rf"|its )?{OF_INPUTS}(?: have)?"
    r"|(?:what|which) (?:inputs|(?:input )?(?:sizes?|shapes?)) (?:is|are) (?:it |we |you )?"
    r"(?:in force|in use|used|being used|set|using)"
    r"|(?:show|print|list|tell)(?: me)? (?:the |my |our )?(?:current )?input (?:shapes?|sizes?))"
    r"(?: (?:right now|now|currently|at the moment|in force|here))*$"
)
"""Which sizes the inputs in force have."""
BYTES_MOVED = (
    r"^(?!.*(?:/s\b|\bper second\b|\bbandwidth\b))"
    r"how (?:many|much) (?:(?:bytes|data|memory|dram|hbm|[kmg]i?b|kilobytes|megabytes|gigabytes)\b"
    r".*\b(?:reads?|writes?|written|moves?|moved|moving"
    r"|transfers?|transferred|loads?|loaded|stores?|stored|touch\w*|traffic)\b|traffic\b"
    rf"|(?:does|do|did|must) {IT} (?:read|write|move|load|transfer)\b)"
)
"""How many bytes a call takes through memory."""
ONE = r"(?:it|this(?: one)?|that(?: one)?|c\d+|the current(?: one| candidate| kernel)?)"
LAST = r"(?:the )?(?:last|latest|newest|most recent)(?: one| candidate| kernel| version)?"
BESIDE = r"(?:and|with|to|from|against|vs\.?|versus|than|or|compared (?:to|with))"
PAIR = rf"(?:{ONE} {BESIDE} {LAST}|{LAST} {BESIDE} {ONE})"
DIFFERENT_FROM_LAST = (
    rf"^(?:(?:(?:what|how|which|where|show|tell|give|see|print|list|explain)\b.*)?"
    rf"\b(?:diff\w*|chang\w+)\b(?: \w+){{0,2}}? {PAIR}"
    rf"|how (?:does|do|is|are) {ONE} (?:differ|different) {BESIDE} {LAST}"
    rf"|what(?:'s| is| has)? (?:different|changed) (?:in|about|with) {ONE} {BESIDE} {LAST})$"
)
COMPARED_WITH_LAST = (
    rf"^(?:(?:now )?compare {PAIR}|how (?:does|do) {ONE} (?:compare|stack up|fare|hold up) "
    rf"{BESIDE} {LAST}|(?:a )?comparison (?:of|between) {PAIR}"
    rf"|{ONE} (?:vs\.?|versus|against) {LAST}"
    rf"|is {ONE} (?:any |much |really )*(?:better|faster|quicker|worse|slower) than {LAST})$"
)
"""A candidate beside the newest one, by their lines and by their figures."""
KIND = r"(?:float(?:ing[- ]point)?|bool(?:ean)?|int(?:eger)?)"
"""A kind of dtype, with no bits named."""
KIND_OF_INPUT = (
    rf"^(?:does|do|can|will|would|could|is) {IT}(?: \w+){{0,2}}? {TAKES}\b.*\b{KIND} \w+"
    rf"(?: (?:instead of|rather than|in place of|not) (?:an? )?{KIND}(?: (?:one|\w+))?)?$"
)
"""Whether an input may be of another kind: "does it handle a float mask instead of bool"."""
CANDIDATE = r"(?:one|candidate|kernel|version|drop-?in)"
FASTEST_OF_A_DTYPE = (
    rf"^(?:which|what|who)(?: {CANDIDATE}| of them)?(?:'s| is| was| would be| runs)? (?:the )?"
    rf"(?:fastest|quickest|best) (?:{CANDIDATE} )?(?:in|for|with|at|on|of) {DTYPE}"
    rf"(?: {INPUTS})?$"
    rf"|^(?:which|what|who)(?: {CANDIDATE})?(?:'s| is| was) the (?:fastest|quickest|best) {DTYPE} "
    rf"{CANDIDATE}$"
    rf"|^which {DTYPE} {CANDIDATE} (?:is|was) (?:the )?(?:fastest|quickest|best)$"
)
"""The fastest of the candidates whose inputs have a dtype."""
TERMS: dict[str, str] = {
    "roofline": r"roof ?line(?: model| chart| plot| picture)?",
    "memory": r"(?:bound by (?:the )?(?:memory|bandwidth)|(?:memory|bandwidth)[- ]bound)",
    "compute": r"(?:bound by (?:compute|computing|arithmetic)|compute[- ]bound)",
    "latency": (
        r"(?:bound by (?:its |the )?(?:latency|launch(?:es)?|overhead)"
        r"|(?:latency|launch|overhead)[- ]bound)"
    ),
    "mixed": r"bound by mixed",
    "ridge": r"ridge(?: point)?",
    "intensity": r"(?:arithmetic|operational) intensity",
    "occupancy": r"occupancy",
    "spills": r"(?:register )?(?:spill(?:s|ing)?|spilled bytes)",
}
"""What a term is called, by the word that stands for it."""
QUOTE = r"[\"'`]?"
TERM = "|".join(TERMS.values())
KERNEL_TERMS = "(?:occupancy|spills?|spilling)"
"""Asked for without an article, it is the current kernel's that is meant."""
MEANING = (
    rf"^(?:what (?:does|do) (?:it mean to be |being |the (?:term|word|phrase) )?{QUOTE}(?:{TERM})"
    rf"{QUOTE} (?:mean|stand for)(?: here| exactly)?"
    rf"|what(?:'s| is) (?!{KERNEL_TERMS}$)(?:an? |meant (?:by|with) |the meaning of )?"
    rf"{QUOTE}(?:{TERM}){QUOTE}"
    rf"(?: here| supposed to mean)?|what do you mean (?:by|with) {QUOTE}(?:{TERM}){QUOTE}"
    rf"|(?:explain|define)(?: to me)? (?:the |what )?(?:term |word |meaning of )?(?:an? )?{QUOTE}"
    rf"(?:{TERM}){QUOTE}(?: to me| means| is)?)$"
)
"""How one asks what a term means."""
ALL_OF_THEM = (
    r"(?:(?:all|each|every)(?: of)?(?: the| my| our| your)?(?: (?:candidates?|ones?|versions?"
    r"|kernels?|of them|them))?|them all|(?:the |my |our |your )?(?:candidates|versions)"
    r"|everything)"
)
COMPARE_ALL = (
    r"^(?:(?:show|give|print|make)(?: me)? )?(?:an? |the )?"
    r"(?:(?:comparison|table|side[- ]by[- ]side)"
    rf"(?: (?:table|comparison|view))?(?: of| for)|compare) {ALL_OF_THEM}"
    r"(?: side by side| with each other| to each other| so far| in a table)*$"
)
"""All candidates in one table."""
SET_ROUNDS = (
    r"^(?:(?:set|use|make) )?(?:the )?(?:number of |max(?:imum)? )?rounds?(?: to| of| ?[=:])? ?"
    r"([1-9]\d{0,3})$"
)
"""A limit of rounds as a setting is typed: "set rounds 2"."""
TO_SHIP = (
    rf"^(?:so |and )?(?:which|what)(?: {CANDIDATE}| of them)? (?:should|shall|would|do|must)"
    r" (?:i|we) (?:now )?(?:ship|use|keep|deploy|take|choose|pick|go with|release)$"
)
"""Which candidate is to be taken."""
CERTAIN: tuple[tuple[Fact, str], ...] = (
    (
        "use",
        r"\bun-?(?:apply|applied|applying|swap|swapped|patch|patched)\b"
        r"|\b(?:undo|revert|reverse|roll back|take back|cancel|back out of) (?:an? |the |my |that "
        r"|agentkernel[.']?s? ?)*(?:apply(?:_all)?|swap|patch)\b(?:\(\w*\))?"
        r"(?: (?:again|call|later|on|to|in|from|of)\b.*)?$",
    ),
    (
        "use",
        rf"\b(?:remove|uninstall|detach|strip|disable|turn off|switch off) {PUT_IN}(?: again)? "
        rf"(?:from|in|inside|out of)\b.*{MODEL}"
        rf"|\b(?:take|get|pull|rip|swap|bring) {PUT_IN}(?: back)? out(?: again)? of\b.*{MODEL}"
        rf"|{HOW_TO}.*\b(?:take|get|pull|rip|swap|bring) {PUT_IN}(?: back)? out(?: again)?$",
    ),
    (
        "use",
        rf"{HOW_TO}(?=.*\b(?:restore|revert|back|undo)\b).*\b(?:original|stock|unmodified"
        r"|(?:old|own|former|plain|eager|pytorch(?:'s)?) (?:\w+ )?(?:layers?|modules?|class(?:es)?"
        r"|model|forward))\b"
        rf"|{HOW_TO}.*\b(?:restore|revert|undo)\b.*\b(?:my|our|the) (?:\w+ )?(?:model|network"
        r"|layers?)\b"
        rf"|\b(?:go|switch|get) back to (?:plain |eager )?pytorch in\b.*{MODEL}"
        r"|^restore (?:my|our|the) (?:original )?(?:model|network|layers?)\b"
        r"|^(?:put|bring|get) (?:back )?(?:my|our|the) (?:original|old) layers?\b"
        r"(?=.*\bback\b|.* in)",
    ),
    (
        "holds",
        rf"{NOT_OF_DTYPES}(?:does|do|can|will|would|could|is|should) {IT}(?: \w+){{0,2}}? {TAKES}\b"
        rf".*?\b{DTYPE}(?: {INPUTS})?(?: (?:too|as well|also|only|alone))?$",
    ),
    (
        "holds",
        rf"^is {IT} (?:(?:only|just|really) )?(?:for |in )?{DTYPE}(?: {INPUTS})?[- ](?:only|alone)$"
        rf"|^is {IT} (?:only|just) (?:for |in ){DTYPE}(?: {INPUTS})?$",
    ),
    (
        "holds",
        rf"{NOT_OF_DTYPES}(?:can|could|may) (?:i|we) (?:use|call|run|feed|apply|try|pass|give) {IT}"
        rf"\b.*?\b{DTYPE}(?: {INPUTS})?(?: (?:too|as well|also|to it))?$"
        rf"|{NOT_OF_DTYPES}(?:can|could|may) (?:i|we) (?:pass|feed|give)\b.*?\b{DTYPE} {INPUTS}"
        rf"(?: to {IT})?$",
    ),
    (
        "holds",
        rf"{NOT_OF_DTYPES}what (?:happens|about|if)\b.*?\b{DTYPE} {INPUTS}$"
        rf"|{NOT_OF_DTYPES}what if (?:the |my |our )?(?:{INPUTS}|x) (?:is|are|were|comes?)\b.*?"
        rf"\b{DTYPE}$"
        rf"|^(?:is|are) {DTYPE} {INPUTS} {TAKEN}(?: too| as well)?$"
        rf"|^is {DTYPE} (?:supported|accepted|handled)(?: too| as well)?$",
    ),
    (
        "holds",
        rf"{NOT_OF_DTYPES}(?:which|what) (?:input )?(?:dtypes?|data ?types?|floats?"
        rf"|(?<=input )types?)(?: \w+)?? (?:(?:does|do|can|will|is|are|did|must|should) {IT}\b"
        rf"|(?:is|are) {TAKEN}\b)",
    ),
    ("holds", KIND_OF_INPUT),
    ("holds", TRAINS_WITH),
    ("holds", UNDER_COMPILE),
    ("holds", INPUTS_NOW),
    ("timing", ESTIMATE_MEANT),
    ("checked", SAFE),
    ("checked", AT_ITS_SIZE),
    ("timing", LAUNCH_IN_TIME),
    ("fastest", FASTEST_OF_A_DTYPE),
)
"""Questions whose words leave no doubt: how a kernel comes out of a model, which dtypes it takes,
training with it, torch.compile around it, the inputs in force, what an estimate is. The facts tell
these from the other questions about its use and about what it holds for."""
STEP = r"(?:it|that|this|the (?:last|new|latest) (?:one|candidate|change|step|kernel))"
BETTER_NOW = (
    rf"^(?:is|was|are|were) {STEP}(?: much| now| really| actually| even)* (?:better|an? "
    r"improvement|a gain|progress)(?: now| then| than (?:before|the (?:one|last one) before))?$"
    rf"|^(?:did|has) {STEP} (?:improve|improved|get better|got better|pay off|work out|make (?:it"
    r"|things|anything) (?:any )?(?:better|faster))(?: now| anything| it| things)?$"
)
"""A question about what a step has brought, with nothing named to compare it with."""
MAKE_BETTER = (
    r"^(?:make (?:it|this|that|the kernel|the module)(?: even| much| still| a bit| a lot| really)*"
    r" (?:better|fast)"
    r"|improve (?:it|this|that|the kernel|the module)(?: further| more| again)?)$"
)
MEMORY_NEEDED = (
    rf"^how (?:much|many) (?:gpu |peak |device |bytes of )?(?:memory|vram|ram)"
    rf" (?:does|do|will|did|would) {IT} (?:need|use|take|want|require|allocate|occupy|cost|eat)"
    r"(?: up)?$"
    r"|^what(?:'s| is| was) (?:the |its )?(?:peak memory|(?:peak )?memory (?:usage|use|footprint"
    rf"|consumption|needs?|requirements?))(?: of {IT})?$"
)
