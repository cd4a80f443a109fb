"""The divergence of a student's log-probabilities from a teacher's."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """sum(exp(teacher) * (teacher - student)) / batch."""

    def forward(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        return F.kl_div(student, teacher, reduction="batchmean", log_target=True)


def get_inputs() -> list[torch.Tensor]:
    student = torch.log_softmax(torch.randn(4096, 8192), -1)
    return [student, torch.log_softmax(torch.randn(4096, 8192), -1)]


def get_init_inputs() -> list[object]:
    return []
