"""Models of transformers, timm, diffusers and torchvision, small or at their published widths.

A recipe builds one model with random weights and makes the arguments of one call.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

SMALL_TEXT = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "embedding_size": 64,
    "pad_token_id": 0,
}
SMALL_SIDES = {
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 96,
    "max_position_embeddings": 64,
}
SMALL_PIXELS = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 24, 32, 48], "image_size": 32}
TEXT = """
bert roberta electra xlm-roberta ernie camembert roformer mpnet rembert megatron-bert nystromformer
deberta-v2 albert llama mistral qwen2 qwen3 gemma gemma2 phi phi3 starcoder2 stablelm cohere granite
olmo olmo2 glm nemotron persimmon helium smollm3 exaone4 falcon gpt_neox mixtral qwen3_moe olmoe
granitemoe
"""
PIXELS = "vit deit beit dinov2 vit_mae vit_msn clip_vision_model siglip_vision_model"


class Recipe(NamedTuple):
    """`build` makes the model, `call` its keyword arguments, `""` standing for positional ones;
    both are told whether the widths are the published ones."""

    build: Callable[[bool], nn.Module]
    call: Callable[[nn.Module, bool], dict[str, Any]]


def tokens(_: nn.Module, wide: bool) -> dict[str, Any]:
    """A batch of sentences."""
    rows, length = (4, 512) if wide else (2, 12)
    return {"input_ids": torch.randint(1, 90, (rows, length))}


def both_sides(model: nn.Module, wide: bool) -> dict[str, Any]:
    """What goes into an encoder and into its decoder."""
    ids = tokens(model, wide)
    return {**ids, "decoder_input_ids": ids["input_ids"]}


def pixels(name: str, side: int = 32) -> Callable[[nn.Module, bool], dict[str, Any]]:
    """Pictures under the given argument name, at published widths of the size that the model
    names."""

    def call(model: nn.Module, wide: bool) -> dict[str, Any]:
        published = getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224))
        shape = (8, *published) if wide else (2, 3, side, side)
        return {name: torch.randn(shape)} if name else {"": (torch.randn(shape),)}

    return call


def pretrained(kind: str, call: Any, small: Mapping[str, Any], **more: Any) -> Recipe:
    """A model of transformers: `kind` names its configuration; the small one takes from `small`
    what that configuration has, and all of `more`."""

    def build(wide: bool) -> nn.Module:
        from transformers import AutoModel
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        known = CONFIG_MAPPING[kind]()
        wanted = {key: value for key, value in small.items() if hasattr(known, key)}
        few = {"num_hidden_layers": 2} if hasattr(known, "num_hidden_layers") else {}
        if kind == "falcon":  # its head size is computed, not given
            wanted.pop("head_dim", None)
        config = CONFIG_MAPPING[kind](**(few if wide else {**wanted, **more}))
        if hasattr(config, "use_cache"):
            config.use_cache = False
        return AutoModel.from_config(config)

    return Recipe(build, call)


def transformers_models() -> Iterator[tuple[str, Recipe]]:
    """Text, pictures and both sides of translation."""
    for kind in TEXT.split():
        yield kind, pretrained(kind, tokens, SMALL_TEXT)
    for kind in PIXELS.split():
        yield kind, pretrained(kind, pixels("pixel_values"), SMALL_PIXELS)
    for kind in ("t5", "bart", "pegasus", "blenderbot"):
        yield kind, pretrained(kind, both_sides, SMALL_SIDES)
    gpt = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 96, "rotary_dim": 8}
    for kind in ("gpt2", "gptj", "codegen"):
        yield kind, pretrained(kind, tokens, gpt)
    yield (
        "distilbert",
        pretrained(
            "distilbert", tokens, {}, dim=64, hidden_dim=128, n_layers=2, n_heads=4, vocab_size=96
        ),
    )
    yield "bloom", pretrained("bloom", tokens, {}, hidden_size=64, n_layer=2, n_head=4)
    yield "opt", pretrained("opt", tokens, SMALL_TEXT, ffn_dim=128, word_embed_proj_dim=64)
    yield "mamba", pretrained("mamba", tokens, SMALL_TEXT, state_size=8)
    for kind, more in {
        "convnext": {},
        "convnextv2": {},
        "poolformer": {},
        "resnet": {"embedding_size": 16},
        "regnet": {"embedding_size": 16, "groups_width": 8},
        "segformer": {"num_attention_heads": [1, 2, 2, 4]},
    }.items():
        yield kind, pretrained(kind, pixels("pixel_values"), STAGES, **more)
    yield (
        "swin",
        pretrained(
            "swin",
            pixels("pixel_values"),
            {},
            image_size=32,
            patch_size=2,
            embed_dim=16,
            depths=[2, 1],
            num_heads=[2, 4],
            window_size=4,
        ),
    )


TIMM = {
    "byobnet": "gernet_m",
    "coatnet": "coatnet_0_224",
    "convnext": "convnext_tiny",
    "convnext2": "convnext_small",
    "convnext3": "convnextv2_tiny",
    "efficientnet": "efficientnet_b0",
    "efficientnet_evos": "efficientnet_b1",
    "efficientnet_gn": "efficientnet_b2",
    "mambaout": "mambaout_tiny",
    "maxvit": "maxvit_tiny_tf_224",
    "nfnet": "dm_nfnet_f0",
    "resnet": "resnet50",
    "vit": "vit_base_patch16_224",
    "vit2": "vit_base_patch32_224",
    "vit3": "vit_small_patch16_224",
    "vit4": "vit_large_patch16_224",
    "vit_relpos": "vit_relpos_base_patch16_224",
}
"""timm's own test models, and what stands for each at a published width."""


def timm_models() -> Iterator[tuple[str, Recipe]]:
    """timm's test models, and a few whose constructors make them small."""

    def build(small: str, published: str, **arguments: Any) -> Callable[[bool], nn.Module]:
        def made(wide: bool) -> nn.Module:
            import timm

            return timm.create_model(published) if wide else timm.create_model(small, **arguments)

        return made

    for name, published in TIMM.items():
        fixed = name.startswith(("coat", "maxvit", "vit"))
        yield name, Recipe(build(f"test_{name}", published), pixels("x", 160 if fixed else 64))
    flat = {"img_size": 64, "embed_dim": 64}
    for name, arguments in {
        "beit_base_patch16_224": {"depth": 2, "num_heads": 4},
        "cait_xxs24_224": {"depth": 2, "num_heads": 4},
        "xcit_nano_12_p16_224": {"depth": 2, "num_heads": 4},
    }.items():
        yield name, Recipe(build(name, name, **flat, **arguments), pixels("x", 64))
    swin = {"img_size": 32, "patch_size": 2, "embed_dim": 16, "depths": (2, 1), "window_size": 4}
    for name in ("swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256"):
        yield name, Recipe(build(name, name, **swin, num_heads=(2, 4)), pixels("x", 32))
    for name in (
        "ghostnet_050",
        "repvgg_a0",
        "edgenext_xx_small",
        "poolformer_s12",
        "fasternet_t0",
    ):
        yield name, Recipe(build(name, name), pixels("x", 64))


def vision(path: str, published: str, side: int = 64, **small: Any) -> Recipe:
    """A model of torchvision: the class or function at `path` builds the small one."""

    def build(wide: bool) -> nn.Module:
        from torchvision import models

        if wide:
            return models.get_model(published, weights=None)
        module, _, name = path.rpartition(".")
        maker = getattr(importlib.import_module(f"torchvision.models.{module}"), name)
        return maker(**small)

    return Recipe(build, pixels("", side))


def resnet(block: str, published: str, **small: Any) -> Recipe:
    """A residual network of torchvision of one block a stage."""

    def build(wide: bool) -> nn.Module:
        from torchvision import models

        if wide:
            return models.get_model(published, weights=None)
        return models.ResNet(getattr(models.resnet, block), [1, 1, 1, 1], **small)

    return Recipe(build, pixels("", 64))


def convnext(wide: bool) -> nn.Module:
    """torchvision's ConvNeXt, whose constructor takes its blocks one by one."""
    from torchvision import models

    if wide:
        return models.convnext_tiny()
    config = models.convnext.CNBlockConfig
    return models.ConvNeXt([config(16, 32, 1), config(32, None, 1)])


def torchvision_models() -> Iterator[tuple[str, Recipe]]:
    """The classifiers of torchvision.models, one of each kind."""
    yield "resnet", resnet("BasicBlock", "resnet18")
    yield "resnext", resnet("Bottleneck", "resnext50_32x4d", groups=2, width_per_group=16)
    yield "convnext", Recipe(convnext, pixels("", 32))
    yield "mobilenet_v2", vision("mobilenetv2.MobileNetV2", "mobilenet_v2", width_mult=0.25)
    yield "mobilenet_v3", vision("mobilenetv3.mobilenet_v3_small", "mobilenet_v3_large")
    yield "shufflenet", vision("shufflenetv2.shufflenet_v2_x0_5", "shufflenet_v2_x1_0")
    yield "squeezenet", vision("squeezenet.squeezenet1_1", "squeezenet1_0")
    yield "mnasnet", vision("mnasnet.MNASNet", "mnasnet1_0", alpha=0.25)
    yield "efficientnet", vision("efficientnet.efficientnet_b0", "efficientnet_b0")
    yield "regnet", vision("regnet.regnet_y_400mf", "regnet_y_1_6gf")
    yield "googlenet", vision("googlenet.GoogLeNet", "googlenet", init_weights=False)
    yield "inception", vision("inception.Inception3", "inception_v3", 96, init_weights=False)
    dense = {"growth_rate": 8, "block_config": (2, 2), "num_init_features": 16}
    yield "densenet", vision("densenet.DenseNet", "densenet121", **dense)
    flat = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 4}
    yield (
        "vit",
        vision(
            "vision_transformer.VisionTransformer",
            "vit_b_16",
            32,
            **flat,
            hidden_dim=64,
            mlp_dim=128,
        ),
    )
    swin = {"patch_size": [2, 2], "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4]}
    place = "swin_transformer"
    yield "swin", vision(f"{place}.SwinTransformer", "swin_t", 32, **swin, window_size=[4, 4])
    more = {"window_size": [4, 4], "stochastic_depth_prob": 0.0, "weights": None, "progress": False}
    yield "swin_v2", vision(f"{place}._swin_transformer", "swin_v2_t", 32, **swin, **more)
    stages = {"block_channels": [16, 32], "block_layers": [1, 1], "partition_size": 4}
    size = {"input_size": (32, 32), "stem_channels": 16, "head_dim": 8}
    dropped = {"stochastic_depth_prob": 0.0}
    yield "maxvit", vision("maxvit.MaxVit", "maxvit_t", 32, **stages, **size, **dropped)


def diffusion(name: str, call: Any, wide_arguments: Mapping[str, Any], **small: Any) -> Recipe:
    """A model of diffusers by its class's name; `call` takes its configuration and a factor for
    the sizes that the configuration leaves open."""

    def build(wide: bool) -> nn.Module:
        import diffusers

        return getattr(diffusers, name)(**(wide_arguments if wide else small))

    return Recipe(build, lambda model, wide: call(model.config, 8 if wide else 1))


def _noisy(dim: str, *, floats: bool = False, **more: str) -> Any:
    """Latent pictures with a time and a text whose width the configuration calls `dim`."""

    def call(config: Any, factor: int) -> dict[str, Any]:
        side = config.sample_size or 8
        latents = torch.randn(2, config.in_channels, side, side)
        steps = torch.rand(2) if floats else torch.randint(0, 9, (2,))
        text = {"encoder_hidden_states": torch.randn(2, 7 * factor, config[dim])} if dim else {}
        extra = {key: torch.randn(2, config[width]) for key, width in more.items()}
        return {"hidden_states": latents, "timestep": steps, **text, **extra}

    return call


def _unet(config: Any, factor: int) -> dict[str, Any]:
    side = 8 * factor
    frames = (4,) if "3D" in config.down_block_types[0] else ()
    made = {"sample": torch.randn(2, config.in_channels, *frames, side, side), "timestep": 3}
    if config.get("cross_attention_dim"):
        made["encoder_hidden_states"] = torch.randn(2, 7 * factor, config.cross_attention_dim)
    return made


def _picture(config: Any, factor: int) -> dict[str, Any]:
    return {"": (torch.randn(2, config.in_channels, 16 * factor, 16 * factor),)}


def _classes(config: Any, factor: int) -> dict[str, Any]:
    return {**_noisy("")(config, factor), "class_labels": torch.randint(0, 9, (2,))}


def _pixart(config: Any, factor: int) -> dict[str, Any]:
    conditions = {"resolution": None, "aspect_ratio": None}
    return {**_noisy("caption_channels")(config, factor), "added_cond_kwargs": conditions}


def _flux(config: Any, factor: int) -> dict[str, Any]:
    pieces, words = 16 * factor * factor, 7 * factor
    return {
        "hidden_states": torch.randn(1, pieces, config.in_channels),
        "encoder_hidden_states": torch.randn(1, words, config.joint_attention_dim),
        "pooled_projections": torch.randn(1, config.pooled_projection_dim),
        "timestep": torch.rand(1),
        "img_ids": torch.randint(0, 4, (pieces, 3)).float(),
        "txt_ids": torch.zeros(words, 3),
    }


def _video(config: Any, factor: int) -> dict[str, Any]:
    text = config.get("text_dim") or config.get("text_embed_dim")
    side = 8 * factor
    shape = (2, config.in_channels) if "text_dim" in config else (config.in_channels, 2)
    latents = torch.randn(1, *reversed(shape), side, side)
    words = torch.randn(1, config.get("max_text_seq_length", 7 * factor), text)
    return {"hidden_states": latents, "encoder_hidden_states": words,
            "timestep": torch.randint(0, 9, (1,))}  # fmt: skip


def _ltx(config: Any, factor: int) -> dict[str, Any]:
    side = 4 * factor
    return {
        "hidden_states": torch.randn(1, 2 * side * side, config.in_channels),
        "encoder_hidden_states": torch.randn(1, 7, config.caption_channels),
        "timestep": torch.randint(0, 9, (1,)),
        "encoder_attention_mask": torch.ones(1, 7),
        "num_frames": 2,
        "height": side,
        "width": side,
    }


def _prior(config: Any, factor: int) -> dict[str, Any]:
    wide = config.embedding_dim
    return {
        "hidden_states": torch.randn(2, wide),
        "timestep": 3,
        "proj_embedding": torch.randn(2, wide),
        "encoder_hidden_states": torch.randn(2, config.num_embeddings, wide),
    }


def diffusers_models() -> Iterator[tuple[str, Recipe]]:
    """Networks of noise and the codecs beside them."""
    stages = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
    crossed = {"cross_attention_dim": 32, "attention_head_dim": 8, "sample_size": 8}
    yield "unet", diffusion(
        "UNet2DModel", _unet, {}, **stages, attention_head_dim=8, sample_size=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"))  # fmt: skip
    yield "unet_text", diffusion(
        "UNet2DConditionModel", _unet, {}, **stages, **crossed,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))  # fmt: skip
    yield "unet_video", diffusion(
        "UNet3DConditionModel", _unet, {}, **stages, **crossed,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"))  # fmt: skip
    codec = {"down_block_types": ("DownEncoderBlock2D",) * 2,
             "up_block_types": ("UpDecoderBlock2D",) * 2}  # fmt: skip
    yield (
        "codec",
        diffusion(
            "AutoencoderKL",
            _picture,
            {"block_out_channels": (128, 256), **codec},
            **stages,
            **codec,
        ),
    )
    yield "codec_tiny", diffusion(
        "AutoencoderTiny", _picture, {}, encoder_block_out_channels=(16, 16),
        decoder_block_out_channels=(16, 16), num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1))  # fmt: skip
    heads = {"num_attention_heads": 2, "attention_head_dim": 16}
    square = {"in_channels": 4, "out_channels": 4, "num_layers": 1, "sample_size": 8}
    one, cut = {"num_layers": 1}, {"patch_size": 2}
    yield "dit", diffusion(
        "DiTTransformer2DModel", _classes, one, **heads, **{**square, "out_channels": 8}, **cut,
        num_embeds_ada_norm=10)  # fmt: skip
    yield "pixart", diffusion(
        "PixArtTransformer2DModel", _pixart, {**one, "caption_channels": 4096}, **heads,
        **{**square, "out_channels": 8}, **cut, cross_attention_dim=32, caption_channels=24,
        use_additional_conditions=False)  # fmt: skip
    joint = {"joint_attention_dim": 32, "caption_projection_dim": 32}
    yield "sd3", diffusion(
        "SD3Transformer2DModel",
        _noisy("joint_attention_dim", pooled_projections="pooled_projection_dim"),
        {"num_layers": 2}, **heads, **{**square, "num_layers": 2}, **cut, **joint,
        pooled_projection_dim=24, pos_embed_max_size=12)  # fmt: skip
    yield "auraflow", diffusion(
        "AuraFlowTransformer2DModel", _noisy("joint_attention_dim", floats=True),
        {"num_mmdit_layers": 1, "num_single_dit_layers": 1}, **heads, **cut, **joint,
        in_channels=4, out_channels=4, sample_size=8, num_mmdit_layers=1,
        num_single_dit_layers=1, pos_embed_max_size=64)  # fmt: skip
    yield "sana", diffusion(
        "SanaTransformer2DModel", _noisy("caption_channels"), one, **heads, **square,
        num_cross_attention_heads=2, cross_attention_head_dim=16, cross_attention_dim=32,
        caption_channels=24, patch_size=1)  # fmt: skip
    yield "flux", diffusion(
        "FluxTransformer2DModel", _flux, {**one, "num_single_layers": 1}, **heads, **one,
        in_channels=16, num_single_layers=1, joint_attention_dim=32, pooled_projection_dim=24,
        axes_dims_rope=(4, 4, 8), patch_size=1)  # fmt: skip
    yield "wan", diffusion(
        "WanTransformer3DModel", _video, one, **one, num_attention_heads=2, attention_head_dim=12,
        in_channels=4, out_channels=4, text_dim=16, freq_dim=32, ffn_dim=64,
        rope_max_seq_len=32)  # fmt: skip
    yield "cogvideox", diffusion(
        "CogVideoXTransformer3DModel", _video, one, **heads, **one, in_channels=4, out_channels=4,
        time_embed_dim=8, text_embed_dim=24, sample_width=8, sample_height=8, sample_frames=8,
        patch_size=2, max_text_seq_length=7)  # fmt: skip
    yield "ltx", diffusion(
        "LTXVideoTransformer3DModel", _ltx, one, **heads, **one, in_channels=8, out_channels=8,
        cross_attention_dim=32, caption_channels=24)  # fmt: skip
    yield "prior", diffusion(
        "PriorTransformer", _prior, one, **heads, **one, embedding_dim=32, num_embeddings=7,
        additional_embeddings=4)  # fmt: skip


LIBRARIES: dict[str, Callable[[], Iterator[tuple[str, Recipe]]]] = {
    "transformers": transformers_models,
    "timm": timm_models,
    "diffusers": diffusers_models,
    "torchvision": torchvision_models,
}


def recipe(library: str, model: str) -> Recipe:
    """The recipe called `model` of a library. Raises KeyError where there is none."""
    return dict(LIBRARIES[library]())[model]


def admit_torchvision() -> torch.library.Library:
    """Declare the operators of a torchvision whose library does not load beside this torch, such as
    one built for CUDA beside a torch for the CPU; no block here calls them. Hold what this returns
    for as long as torchvision is in use."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    found = importlib.util.find_spec("torchvision")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    for path in (path for folder in folders for path in Path(folder).glob("_C*.so")):
        with contextlib.suppress(OSError):
            torch.ops.load_library(path)
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
