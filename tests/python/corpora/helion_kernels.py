"""Kernels in Helion, which reads their source."""

import helion
import helion.language as hl
import torch


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Element by element, over two dimensions."""
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Over rows, a row at a time."""
    rows, _columns = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        values = x[tile, :].to(torch.float32)
        exponents = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[tile, :] = (exponents / torch.sum(exponents, dim=1, keepdim=True)).to(x.dtype)
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """With a number as argument."""
    rows, _columns = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        values = x[tile, :].to(torch.float32)
        scale = torch.rsqrt(torch.mean(values * values, dim=1, keepdim=True) + eps)
        out[tile, :] = (values * scale * weight[:].to(torch.float32)).to(x.dtype)
    return out


def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Blocks, summed up in float32."""
    m, k = x.size()
    _k, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(k):
            acc = torch.addmm(acc, x[rows, inner], y[inner, columns])
        out[rows, columns] = acc.to(x.dtype)
    return out


def row_sums(x: torch.Tensor, sums: torch.Tensor) -> None:
    """Into memory that it is given."""
    rows, _columns = x.size()
    for tile in hl.tile(rows):
        sums[tile] = sums[tile] + torch.sum(x[tile, :], dim=1)


CONFIGS = {
    add: helion.Config(block_sizes=[16, 32]),
    softmax: helion.Config(block_sizes=[1]),
    rms_norm: helion.Config(block_sizes=[2]),
    matmul: helion.Config(block_sizes=[16, 16, 16]),
    row_sums: helion.Config(block_sizes=[4]),
}
