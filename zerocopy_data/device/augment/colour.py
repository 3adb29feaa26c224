"""Changes of colour, each sample of a batch by its own amount: torchvision's, on uint8 to the bit unless it says so.

Images are [m, C, H, W], C is 1 or 3; amounts are tensors [m, …] on the same device. uint8 reaches to 255, floats to
1. A result has the dtype of the images; halves are worked on in float32. Nothing waits for the device.
"""

from __future__ import annotations

import torch


def bound(images: torch.Tensor) -> float:
    """The largest value that such images have."""
    return 1.0 if images.is_floating_point() else 255.0


def _each(values: torch.Tensor) -> torch.Tensor:
    return values.view(-1, 1, 1, 1)


def _gray(images: torch.Tensor) -> torch.Tensor:
    """Luma (ITU-R BT.601), float32 [m, 1, H, W]; of uint8 the whole part of it, as Pillow has it."""
    red, green, blue = images.to(torch.float32, copy=True).unbind(1)
    luma = red.mul_(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(1)
    return luma if images.is_floating_point() else luma.floor_()


def _blend(images: torch.Tensor, other: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """images * r + other * (1 - r), cut to the range. `ratio` is float32 [m, 2]: r and 1 - r, each rounded once."""
    mixed = (images * _each(ratio[:, 0])).addcmul_(other, _each(ratio[:, 1]))
    return mixed.clamp_(0, bound(images)).to(images.dtype)


def brightness(images: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Multiplies. `ratio` is float32 [m, 2], factor and 1 - factor, as in all of these."""
    return (images * _each(ratio[:, 0])).clamp_(0, bound(images)).to(images.dtype)


def contrast(images: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Blends with the mean of the image's gray.

    The sum is made in float64: of uint8 it is exact, so that no order of summation, and no other image of the batch,
    can change it. Above 65,793 pixels torchvision's float32 sum may be inexact, and a pixel differ by one level.
    """
    gray = _gray(images) if images.shape[1] == 3 else images.to(torch.float32)
    pixels = images.shape[2] * images.shape[3]
    mean = gray.sum((1, 2, 3), dtype=torch.float64).div_(pixels).to(torch.float32)
    return _blend(images, _each(mean), ratio)


def saturation(images: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Blends with the image's gray; images of one channel stay."""
    return images if images.shape[1] == 1 else _blend(images, _gray(images), ratio)


def hue(images: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Turns the hue by float32 [m], in turns of the wheel; images of one channel stay.

    Through HSV, in the form without cases: a channel is v - chroma * clamp(min(k, 4 - k), 0, 1), k its distance on the
    wheel of six. Within one level of torchvision on uint8, which takes the way by a table of cases.
    """
    if images.shape[1] == 1:
        return images
    is_float = images.is_floating_point()
    pixels = images.to(torch.float32) if is_float else images * (1 / 255)
    red, green, blue = pixels.unbind(1)
    low, value = torch.aminmax(pixels, dim=1)
    chroma = value - low
    divisor = torch.where(chroma == 0, 1.0, chroma)
    from_red = (green - blue).div_(divisor)
    from_green = (blue - red).div_(divisor).add_(2)
    from_blue = (red - green).div_(divisor).add_(4)
    wheel = torch.where(value == red, from_red, torch.where(value == green, from_green, from_blue))
    wheel = wheel.add_(turn.view(-1, 1, 1) * 6)
    channels = []
    for start in (5, 3, 1):
        k = (wheel + start).remainder_(6)
        channels.append(value - torch.minimum(k, 4 - k).clamp_(0, 1).mul_(chroma))
    turned = torch.stack(channels, 1)
    # 255.999: each of the 256 levels gets an equal share of [0, 1], as torchvision's conversion has it.
    return turned.to(images.dtype) if is_float else turned.mul_(255.999).to(torch.uint8)


def sharpness(images: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Blends with a smoothed image (each of the nine around counts 1/13, the middle 5/13); the border stays."""
    if images.shape[2] <= 2 or images.shape[3] <= 2:
        return images
    is_float = images.is_floating_point()
    out = images.to(torch.float32, copy=True)
    inner = out[:, :, 1:-1, 1:-1]
    smooth = torch.nn.functional.avg_pool2d(out, 3, 1, divisor_override=13).add_(inner, alpha=4 / 13)
    if not is_float:
        smooth.round_()  # thirteenths are never half way between levels: the order of their sum makes no difference
    inner.addcmul_(smooth.sub_(inner), _each(ratio[:, 1]))
    return out.clamp_(0, bound(images)).to(images.dtype)


def posterize(images: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Keeps the upper bits, int64 [m], of each value."""
    if not images.is_floating_point():
        return images & _each((255 << (8 - bits)).to(torch.uint8))
    levels = _each(torch.ones_like(bits) << bits).to(torch.float32)
    return (images * levels).floor_().clamp_(min=0).minimum(levels - 1).div_(levels).to(images.dtype)


def solarize(images: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """Inverts what is not below the threshold, float32 [m] in the images' range."""
    return torch.where(images >= _each(threshold), invert(images), images)


def invert(images: torch.Tensor) -> torch.Tensor:
    """Mirrors every value in its range."""
    return 1 - images if images.is_floating_point() else images.bitwise_not()


def autocontrast(images: torch.Tensor) -> torch.Tensor:
    """Stretches each channel of each image to the whole range; a channel of one value stays.

    torchvision's own takes a boolean mask as index, for which the host waits on a device.
    """
    top = bound(images)
    pixels = images.to(torch.float32, copy=True)
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    flat = high == low
    scale = torch.where(flat, 1.0, (high - low).mul_(1.0 / top))
    low = torch.where(flat, 0.0, low)
    return pixels.sub_(low).div_(scale).clamp_(0, top).to(images.dtype)


def equalize(images: torch.Tensor) -> torch.Tensor:
    """Flattens the histogram of each channel of each image: torchvision's, which takes batches and never waits."""
    from .torchvision import functional

    is_half = images.dtype in (torch.float16, torch.bfloat16)
    made: torch.Tensor = functional().equalize(images.to(torch.float32) if is_half else images)
    return made.to(images.dtype)
