"""JPEGs of every kind that the native core must take, made here: by Pillow, and by a small encoder for what Pillow
cannot write (4:1:1, 4:4:0, odd sampling factors, scans of one component)."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def photo(seed: int, width: int, height: int) -> Pixels:
    """uint8 [height, width, 3] with slopes, edges and noise: no pixel is like its neighbour, as at a photo's edges."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    out = np.empty((height, width, 3), np.float64)
    for channel in range(3):
        fx, fy, phase = rng.uniform(0.02, 0.5, 3)
        out[..., channel] = 128 + 90 * np.sin(x * fx + phase * 12) * np.cos(y * fy) + rng.normal(0, 12, (height, width))
    for _ in range(4):
        x0, y0 = int(rng.integers(width)), int(rng.integers(height))
        out[y0 : y0 + height // 3 + 1, x0 : x0 + width // 3 + 1] = rng.integers(0, 256, 3)
    return np.clip(out, 0, 255).astype(np.uint8)


def pillow_jpeg(image: Pixels, mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).convert(mode).save(buffer, "JPEG", **{"quality": 85, **options})
    return buffer.getvalue()


def pillow_pixels(data: bytes) -> Pixels:
    """What Pillow makes of the bytes, without orientation."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


# Sizes around the blocks of 8 and the 16 and 32 pixel MCUs, lines of one pixel, and primes.
SIZES = [
    (1, 1), (1, 9), (9, 1), (2, 2), (7, 13), (8, 8), (15, 16), (16, 15), (16, 16), (17, 33), (31, 32), (32, 31),
    (33, 17), (47, 48), (64, 64), (65, 63), (101, 67), (1, 120), (120, 1),
]  # fmt: skip

PILLOW_VARIATIONS: dict[str, dict[str, Any]] = {
    "420": {"subsampling": 2},
    "422": {"subsampling": 1},
    "444": {"subsampling": 0},
    "gray": {"mode": "L"},
    "420 progressive": {"subsampling": 2, "progressive": True},
    "422 progressive": {"subsampling": 1, "progressive": True},
    "444 progressive": {"subsampling": 0, "progressive": True},
    "gray progressive": {"mode": "L", "progressive": True},
    "420 restart rows": {"subsampling": 2, "restart_marker_rows": 1},
    "420 restart blocks": {"subsampling": 2, "restart_marker_blocks": 3},
    "422 restart blocks": {"subsampling": 1, "restart_marker_blocks": 2},
    "420 progressive restart": {"subsampling": 2, "progressive": True, "restart_marker_blocks": 2},
    "420 optimized": {"subsampling": 2, "optimize": True},
    "quality 1": {"quality": 1},
    "quality 100": {"quality": 100, "subsampling": 2},
    "keep RGB": {"keep_rgb": True},
}

# Name → sampling factors (horizontal, vertical) of each component.
SAMPLINGS: dict[str, list[tuple[int, int]]] = {
    "411": [(4, 1), (1, 1), (1, 1)],
    "440": [(1, 2), (1, 1), (1, 1)],
    "410": [(4, 2), (1, 1), (1, 1)],
    "441": [(1, 4), (1, 1), (1, 1)],
    "422 as 2x2 over 1x2": [(2, 2), (1, 2), (1, 2)],
    "444 as 2x1": [(2, 1), (2, 1), (2, 1)],
    "chroma finer than luma": [(1, 1), (2, 2), (2, 1)],
    "three kinds": [(2, 2), (1, 2), (2, 1)],
    "gray 2x2": [(2, 2)],
    "gray 1x1": [(1, 1)],
}


class Bits:
    """Entropy-coded data: most significant bit first, a zero stuffed after every 0xff."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._value = self._count = 0

    def put(self, value: int, count: int) -> None:
        self._value = self._value << count | value
        self._count += count
        while self._count >= 8:
            self._count -= 8
            byte = self._value >> self._count & 0xFF
            self.out.append(byte)
            if byte == 0xFF:
                self.out.append(0)
        self._value &= (1 << self._count) - 1

    def flush(self) -> None:
        if self._count:
            self.put((1 << 8 - self._count) - 1, 8 - self._count)

    def marker(self, code: int) -> None:
        self.flush()
        self.out += bytes((0xFF, code))


# Codes of one length for all symbols: legal, and no table of the standard needs to be spelled out.
_AC_SYMBOLS = [0x00, 0xF0, *(run << 4 | size for run in range(16) for size in range(1, 7))]


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def put_number(bits: Bits, value: int, size: int) -> None:
    if size:
        bits.put(value if value > 0 else value + (1 << size) - 1, size)


def sampled_jpeg(
    width: int,
    height: int,
    factors: Sequence[tuple[int, int]],
    seed: int = 0,
    restart: int = 0,
    interleaved: bool = True,
    ids: Sequence[int] = (1, 2, 3),
) -> bytes:
    """A baseline JPEG of random coefficients with any sampling factors."""
    rng = np.random.default_rng(seed)
    h_max, v_max = max(h for h, _ in factors), max(v for _, v in factors)
    out = bytearray(b"\xff\xd8")
    out += _segment(0xDB, b"\x00" + bytes([10] * 64))
    frame = struct.pack(">BHHB", 8, height, width, len(factors))
    for component, (h, v) in zip(ids, factors, strict=False):
        frame += bytes((component, h << 4 | v, 0))
    out += _segment(0xC0, frame)
    out += _segment(0xC4, b"\x00" + bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12)))
    out += _segment(0xC4, b"\x10" + bytes([0] * 7 + [len(_AC_SYMBOLS)] + [0] * 8) + bytes(_AC_SYMBOLS))
    if restart:
        out += _segment(0xDD, struct.pack(">H", restart))

    def block(bits: Bits, predictions: list[int], component: int) -> None:
        dc = int(rng.integers(-70, 70))
        difference, predictions[component] = dc - predictions[component], dc
        size = abs(difference).bit_length()
        bits.put(size, 4)
        put_number(bits, difference, size)
        at = 0
        for position in sorted(set(rng.integers(1, 64, 4).tolist())):
            run = position - at - 1
            while run > 15:
                bits.put(_AC_SYMBOLS.index(0xF0), 8)
                run -= 16
            value = int(rng.choice([-9, -3, -1, 1, 2, 7]))
            size = abs(value).bit_length()
            bits.put(_AC_SYMBOLS.index(run << 4 | size), 8)
            put_number(bits, value, size)
            at = position
        if at != 63:
            bits.put(_AC_SYMBOLS.index(0x00), 8)

    def scan(components: Sequence[int]) -> None:
        nonlocal out
        head = bytes([len(components)]) + b"".join(bytes((ids[c], 0)) for c in components) + b"\x00\x3f\x00"
        out += _segment(0xDA, head)
        if len(components) == 1:  # such a scan counts in blocks of the component alone
            h, v = factors[components[0]]
            across, down = _ceil(_ceil(width * h, h_max), 8), _ceil(_ceil(height * v, v_max), 8)
            blocks = [components[0]]
        else:
            across, down = _ceil(width, 8 * h_max), _ceil(height, 8 * v_max)
            blocks = [c for c in components for _ in range(factors[c][0] * factors[c][1])]
        bits, predictions = Bits(), [0] * len(factors)
        for mcu in range(across * down):
            if restart and mcu and mcu % restart == 0:
                bits.marker(0xD0 + (mcu // restart - 1) % 8)
                predictions = [0] * len(factors)
            for component in blocks:
                block(bits, predictions, component)
        bits.flush()
        out += bits.out

    everything = range(len(factors))
    for components in [everything] if interleaved else [[c] for c in everything]:
        scan(components)
    return bytes(out + b"\xff\xd9")


# Kinds that need another encoder, made once with libjpeg-turbo's cjpeg and jpegtran from photo(3, 45, 37).
_FROM_TOOLS: dict[str, str] = {
    "420 arithmetic": (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV02>k%7Zed27Zw*D92+1gLMtdGB`8rkJupIGRb^yfRb5+Zc$tA}agcLcU4^xVke;Kft*d8%yve$"
        "z$C;?Br2pFhLjfEf9w;LyPAe-"
        ";q;6eqq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@@4J01*fPB>*i00U`hb5di}c0sqVZ3IGrg1py"
        "Ed1^?Or3<CiG0ucid06zfz#(#D?T2g0q{TOxvh*_ghX&>+=eqcJl#=ghAqSeq@x7o?^duCUFVbUqXSBkp@`kgBWQr6PV;b1=`C+8b!9*"
        "|W)T@h6ox><2@E>TCs5A_QDhoC}U#UxBFzpLOme2i(l!OELrvtEg)3l9h6B<~JQ-"
        "i%lG*!!N`fuiou_7irbcSj_=E0Ci%X1J`|{P@4_m=mx2riw#-"
        "7{lLwL?rsxjMG<Qh%?}U+>)6ubd$yiOXt7R4AWB`2#|hN{2|C>X_YT`7I_o?!Au%m>D{?x%qGtqwD(+n+LJf+%z&SGf40_>UI4WJ*#"
    ),
    "420 arithmetic progressive": (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV02>k%7Zed27Zw*D92+1gLMtdGB`8rkJupIGRb^yfRb5+Zc$tA}agcLcU4^xVke;Kft*d8%yve$"
        "z$C;?Br2pFhLjfEf9w;LyPAe-"
        ";q;6eqq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@@4K01*fPB>*i00U`hb5di}c0sqVZ1^^HN5dY"
        "c$3<CiG0uTcb0005|f$Ir_Y~u*Y-"
        "PpG5RxbObk&rMFjb~K&Y@vF0V#Qql0AT;j00a;P|Jncu0RaF31p=ev=RDG_1BmZ&h~7ZWgV~e*Y}@m5q)@CF-"
        "sAtw00a>Q|Jncu0RsU6KLKV;G56(SyAT}s|I7dc5e5I+00;pB0RcY&j<VybK6GvfL1GR*NSL(k|I7dc5C#9*00;pA00ut-yKZ5dp#RJO"
        "1P}%P+5iXv0RRC%AwX$TgDKi=5S(-"
        "F+j&<l+CtyL2Ze+}g$^I4zFT_Y(Wh3sjsMyJ3<CiG0ssR5000nT&KD&=u7Ll{00a>Q|Jncu0RsU6KM?w|DLOSh&QB?$8hyoV|I7dc5e5"
        "I+00;pB0RcY{4DXmfI{3Us-*Fz>8>cE@|I7dc5C#9*00;pA00BP`Dpp4X5B;%ZY6(8}aY4v#K`U}6%mtVSW*4P4j7UQ37?-"
        "l|+u*DQK%ebfDQ524Eu$ie&}<1tbns65(dL4Nzd#nR=9T~1"
    ),
    "411 progressive": (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV02>k%7Zed27Zw*D92+1gLMtdGB`8rkJupIGRb^yfRb5+Zc$tA}agcLcU4^xVke;Kft*d8%yve$"
        "z$C;?Br2pFhLjfEf9w;LyPAe-"
        ";q;6eqq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@@4C01*fPB>*i00YLx)5di}c0sq7R7ytkR0Ra"
        "F20000000000000020|5m8!~hrp0RaI40RR9100000000000|Ed61pnFq3<CiG0uTcb0004tQS{~n`X3~eG^lBg)RaItde1(tP%&^fPB"
        "W+ifB(b)91s8k0|5a60RR9100000000015D^jrF%u#G+5iXv0RRC70?CmxN2X=MW}$wRQC57>t_0I(esMg!nj5&Y|HJ?t5dZ=L0R;d60"
        "000000000000335fB3*F;QXv+5iXv0|5a)0b7c6MNrK})*rZ+BaNT`!~h!+00II70RR910000000000009CL5g{=H|Jncu0RjO5KLL`t"
        "To82|CUC<~W9jI&iFE(O02vSf0R;d6000000000000000AuusOLI2tS2mt{A20sF$q=?`D!~h%+0RaI30s{d600000000000RRyYAs|s"
        "<@c-"
        "HX2mt{A0Y4$!V#C0QN<p!(gOjmTR6*7BpMiHq@UySEZt|;3UnLyB|Jncy0|5X600RI301yfVy#^y3bKn2O02vVh0RaI40RR910000000"
        "00101+WELI2tS2mu2D0Y4Cc8GW{wmQZ;WnVh^LTHpV~02vVg0|5a60000000000000000TCfFLI2tS2mt~C0Y4D(m4RIsblbr;kd&0{A"
        "(wOi!~h=<0RRI500II700000000000RRypF%Usf(Q%QX|Jncu0RaF3KM=cp#(OOOC3zG%EbI$N!y+7kUtv<<X_0!$B}DdAF?CUEDPIvz"
        "{^RN$AMN!P7pmM(3<y`@64Xw2%99l<XFSxPA=}RaGJpTs"
    ),
    "440 progressive": (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV02>k%7Zed27Zw*D92+1gLMtdGB`8rkJupIGRb^yfRb5+Zc$tA}agcLcU4^xVke;Kft*d8%yve$"
        "z$C;?Br2pFhLjfEf9w;LyPAe-"
        ";q;6eqq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@<*zq@@4C01*fPB>*i00TKWL5di}c0sq7R7ytkR0Ra"
        "F20000000000000020|Wv8!~hrp00RL5000000000000000009C71OM6p3<CiG0uTcb0004wqBGnPT~|3*MA^|AK8aN$^MvI}_NSGXfZ"
        "M5rw3v8s)6qr-"
        "Y5&9k91s8k0|5a60RR9100000000015D^jrF%u#G+5iXv0RRC70?CmxN2X=MW}$wRQC57>t_0I(esMg!nj5&Y|HJ?r5dZ@K0s{a50000"
        "0000000003I0wEJHVgK3y2mu2D0Y3rRvJn;>jJ^$!c=SYn|HJ?t5dZ=L0s{d60000000000000335fBm+Au&<^+5iXv0s#R(0p3N~tXa"
        "ncSREHHgS<vI$wyqYpQ9-"
        "({{a8Q02vSf0R;d6000000000000000AuusOLI2tS2mt{A20sF$q=?`D!~h%+0RaI30s{d600000000000RRyYAs|s<@c-"
        "HX2mt{A0Y4$!V#C0QN<p!(gOjmTR6*7BpMiHq@UySEZt|;3UnLyB|Jncy0|5X600RI301yQg#W6&b4gK8z!~h!+0RaF40|5X40000000"
        "0000RRy(5Ft@v|Jncu0RsU6KM=uzZVR|8%JZ=&MyD&r1l^txcMF>we6Rn+038tk0{{U90RR9100000000000TB=(F+ovbk^kBN2mt~C0"
        "Y4D)FLBB}My-ap9nJ7`Rj55h%87_qgpn{>#Iygz03Q$m00RL40s;d7000000000101+WE5J6GVagm|_+5iXv0RRC%5W9WGdo2DXc@#M;"
        "><dW4A{>EVVN&2}k$TD{MD|oMbx~_6UlC6J<LVtB?e!KHs@zWu2v^|})J}KGlNBpxJk+2e+s^_rfB)G"
    ),
}
FROM_TOOLS = {name: base64.b85decode(text) for name, text in _FROM_TOOLS.items()}


# Name → arguments of `sampled_jpeg` beside the size and the seed.
CRAFTED: dict[str, dict[str, Any]] = {
    **{name: {"factors": factors} for name, factors in SAMPLINGS.items()},
    "411 restart": {"factors": SAMPLINGS["411"], "restart": 2},
    "440 restart": {"factors": SAMPLINGS["440"], "restart": 1},
    "420 scan by scan": {"factors": [(2, 2), (1, 1), (1, 1)], "interleaved": False},
    "RGB": {"factors": [(1, 1)] * 3, "ids": [ord(c) for c in "RGB"]},
}
KINDS = [*PILLOW_VARIATIONS, *CRAFTED]


@cache
def of_kind(kind: str, width: int, height: int, seed: int = 0) -> bytes:
    """A JPEG of one of KINDS."""
    if kind in CRAFTED:
        return sampled_jpeg(width, height, seed=seed, **CRAFTED[kind])
    return pillow_jpeg(photo(seed, width, height), **PILLOW_VARIATIONS[kind])


def with_exif_orientation(data: bytes, orientation: int, big_endian: bool = False) -> bytes:
    order = ">" if big_endian else "<"
    tiff = (b"MM\x00\x2a" if big_endian else b"II\x2a\x00") + struct.pack(
        order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0
    )
    return data[:2] + _segment(0xE1, b"Exif\0\0" + tiff) + data[2:]


def with_xmp(data: bytes, text: str) -> bytes:
    return data[:2] + _segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + text.encode()) + data[2:]


def with_size(data: bytes, width: int, height: int) -> bytes:
    """The same JPEG with another size in its header."""
    for marker in (b"\xff\xc0", b"\xff\xc2", b"\xff\xc9"):
        frame = data.find(marker)
        if frame >= 0:
            return data[: frame + 5] + struct.pack(">HH", height, width) + data[frame + 9 :]
    raise ValueError("no frame header")


def cmyk(ycck: bool = False) -> bytes:
    data = pillow_jpeg(photo(2, 40, 30), "CMYK")
    at = data.index(b"Adobe")
    # The last byte of the Adobe segment says how the four components are to be read: 0 CMYK, 2 YCCK.
    return data[: at + 11] + bytes([2 if ycck else 0]) + data[at + 12 :]
