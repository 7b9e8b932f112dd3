"""nn.functional.*, signal and masked ops: part of mapping.py's table, which see."""

import itertools
import math

import numpy as np
import rlx
from helpers import Both, along, floats
from mapping_masked import MAPPING as MASKED


def sizes(v, n):
    """A size per axis of n: one for all, or a list."""
    v = list(v) if isinstance(v, (list, tuple)) else [v]
    return v * n if len(v) == 1 else v


def batched(n):
    """f on images [N, C, ..] with n axes of space, which PyTorch also takes without N."""

    def wrap(f):
        def call(x, *args, **kwargs):
            if x.ndim == n + 2:
                return f(x, *args, **kwargs)
            y = f(x.expand_dims(0), *args, **kwargs)
            return [v.squeeze(0) for v in y] if isinstance(y, (list, tuple)) else y.squeeze(0)

        return call

    return wrap


def reduced(y, mode):
    """A loss per element, reduced."""
    return y.mean() if mode == "mean" else y.sum() if mode == "sum" else y


# ---- convolutions and windows


def _biased(y, bias, n):
    return y if bias is None else y + bias.reshape([-1] + [1] * n)


def _conv(n):
    def conv(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
        dilation = sizes(dilation, n)
        spread = [d * (k - 1) for d, k in zip(dilation, w.shape[2:])]
        low = [s // 2 for s in spread] if padding == "same" else sizes(0 if padding == "valid" else padding, n)
        high = [s - p for s, p in zip(spread, low)] if padding == "same" else low
        y = rlx.conv(x, w, stride=sizes(stride, n), dilation=dilation, low=low, high=high, groups=groups)
        return _biased(y, bias, n)

    return batched(n)(conv)


def _conv_transpose(n):
    def conv(x, w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        padding = sizes(padding, n)
        options = {"stride": sizes(stride, n), "dilation": sizes(dilation, n), "groups": groups}
        extra = sizes(output_padding, n)
        return _biased(rlx.conv_transpose(x, w, low=padding, high=padding, output_padding=extra, **options), bias, n)

    return batched(n)(conv)


def _window(n, kernel, stride, padding):
    kernel, padding = sizes(kernel, n), sizes(padding, n)
    stride = kernel if stride is None or stride == () or stride == [] else sizes(stride, n)
    return {"kernel": kernel, "stride": stride, "low": padding, "high": padding}


def _avg_pool(n):
    def pool(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        window = _window(n, kernel_size, stride, padding) | {"ceil_mode": ceil_mode}
        if divisor_override is not None:
            return rlx.div(rlx.pool(x, kind="sum", **window), divisor_override)
        return rlx.pool(x, kind="mean", count_include_pad=count_include_pad, **window)

    return pool


def _max_pool(n):
    def pool(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        window = _window(n, kernel_size, stride, padding) | {"ceil_mode": ceil_mode, "dilation": sizes(dilation, n)}
        return rlx.max_pool_with_indices(x, **window) if return_indices else rlx.pool(x, kind="max", **window)

    return pool


def _max_pool_backward(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The gradient of the sum of the maxima."""
    window = _window(2, kernel_size, stride, padding) | {"ceil_mode": ceil_mode, "dilation": sizes(dilation, 2)}
    y = rlx.pool(x, kind="max", **window)
    return rlx.max_pool_backward(x, _filled(y.shape, 1.0, x), **window)


def _max_unpool(n):
    def unpool(x, indices, kernel_size, stride=None, padding=0, output_size=None):
        window = _window(n, kernel_size, stride, padding)
        inverse = zip(x.shape[-n:], window["kernel"], window["stride"], window["low"])
        default = [(size - 1) * s - 2 * p + k for size, k, s, p in inverse]
        return rlx.max_unpool(x, indices, size=list(output_size)[-n:] if output_size is not None else default)

    return unpool


def _adaptive(f, n):
    def pool(x, output_size, return_indices=False):
        size = [s if s is not None else x.shape[i - n] for i, s in enumerate(sizes(output_size, n))]
        return f(x, size=size)

    return pool


def _unfold(x, kernel_size, dilation=1, padding=0, stride=1):
    window = _window(2, kernel_size, stride, padding)
    return rlx.unfold(x, dilation=sizes(dilation, 2), **window)


def _pad(x, amounts, mode="constant", value=None):
    ends = [(0, 0)] * (x.ndim - len(amounts) // 2) + list(zip(amounts[::2], amounts[1::2]))[::-1]
    low, high = ([e[i] for e in ends] for i in (0, 1))
    if mode == "constant":
        return rlx.op.pad(x, rlx.array(value or 0).astype(x.dtype), low=low, high=high)
    ours = {"replicate": "edge", "reflect": "reflect", "circular": "wrap"}[mode]
    grow = lambda v: rlx.pad_mode(v, low=[max(n, 0) for n in low], high=[max(n, 0) for n in high], mode=ours)
    if min(low + high) >= 0:
        return grow(x)
    zero = rlx.zeros(()).astype(x.dtype)
    crop = lambda v: rlx.op.pad(v, zero, low=[min(n, 0) for n in low], high=[min(n, 0) for n in high])
    return grow(crop(x)) if mode == "circular" else crop(grow(x))


# ---- resampling


def _resize(x, out, factors, mode, corners, antialias=False):
    """PyTorch's modes; with factors that were given the scale is taken from them, else from the sizes."""
    axes = list(range(2, x.ndim))
    place = "align_corners" if corners else "asymmetric" if mode == "nearest" else "half_pixel"
    kind = {"nearest": "nearest", "nearest-exact": "nearest", "bicubic": "cubic"}.get(mode, "linear")
    options = {"mode": kind, "axes": axes, "coordinates": place, "antialias": antialias, "exclude_outside": antialias}
    if kind == "nearest":
        options["nearest_mode"] = "floor" if mode == "nearest" else "round_prefer_ceil"
    return rlx.resize(x, **options, **({"sizes": out} if factors is None else {"scales": factors}))


def _interpolate(
    x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False
):
    n = x.ndim - 2
    if size is not None:
        out, factors = sizes(size, n), None
    else:
        given = sizes(scale_factor, n)
        out = [math.floor(s * f) for s, f in zip(x.shape[2:], given)]
        factors = None if recompute_scale_factor else given
    if mode == "area":
        return rlx.adaptive_avg_pool(x, size=out)
    return _resize(x, out, factors, mode, align_corners, antialias)


def _aa_weights(source, target, scale):
    """The weights of PyTorch's antialiased triangles, [target, source]: result i lies at scale * (i + 1/2)."""
    width = max(scale, 1.0)
    weights = np.zeros((target, source))
    for i in range(target):
        centre = scale * (i + 0.5)
        low, high = max(int(centre - width + 0.5), 0), min(int(centre + width + 0.5), source)
        triangle = np.maximum(0, 1 - np.abs(np.arange(low, high) - centre + 0.5) / width)
        weights[i, low:high] = triangle / triangle.sum()
    return weights


def _upsample_aa(x, output_size=None, align_corners=False, scale_factors=None, scales_h=None, scales_w=None):
    """Aligned corners change PyTorch's scale, (m - 1) / (n - 1), but not where the centres lie, so that no corners are
    aligned (our resize aligns them); and it takes a scale beside a size that contradicts it. Both cases are compared with
    PyTorch's weights applied as products."""
    size = None if output_size is None else list(output_size)
    if not align_corners and scales_h is None:
        return _interpolate(x, size, scale_factors, "bilinear", align_corners, antialias=True)
    size = size or [math.floor(s * f) for s, f in zip(x.shape[2:], scale_factors)]
    whole = x.dtype.kind == "integer"
    y = x.astype("f64") if whole else x
    corners = [(m - 1) / (n - 1) if n > 1 else 0.0 for m, n in zip(x.shape[2:], size)]
    scales = corners if align_corners else [1 / scales_h, 1 / scales_w]
    down, across = (
        rlx.array(_aa_weights(m, n, scale)).astype(y.dtype) for m, n, scale in zip(x.shape[2:], size, scales)
    )
    y = down @ (y @ across.T)
    return rlx.round(y).astype(x.dtype) if whole else y


def _grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return rlx.grid_sample(x, grid, mode=kind, outside=padding_mode, align_corners=bool(align_corners))


def _grid_sampler(x, grid, mode, padding, corners):
    return _grid_sample(
        x, grid, ["bilinear", "nearest", "bicubic"][mode], ["zeros", "border", "reflection"][padding], corners
    )


# ---- normalisation


def _filled(shape, value, x):
    return rlx.broadcast(rlx.array(value).astype(x.dtype), shape=list(shape))


def _flat_norm(x, shape, weight, bias):
    """x with the normalised axes as one, the weight and the bias for it."""
    n = math.prod(shape)
    flat = x.reshape([*x.shape[: x.ndim - len(shape)], n])
    weight = _filled([n], 1.0, x) if weight is None else weight.reshape([n])
    return flat, weight, _filled([n], 0.0, x) if bias is None else bias.reshape([n])


def _layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    return rlx.layer_norm(*_flat_norm(x, shape, weight, bias), eps=eps).reshape(x.shape)


def _rms_norm(x, shape, weight=None, eps=None):
    eps = {"f64": 2.0**-52}.get(x.dtype.name, 2.0**-23) if eps is None else eps
    return rlx.rms_norm(*_flat_norm(x, shape, weight, None), eps=eps).reshape(x.shape)


def _affine(x, weight, bias):
    c = x.shape[1] if x.ndim > 1 else x.shape[0]
    return _filled([c], 1.0, x) if weight is None else weight, _filled([c], 0.0, x) if bias is None else bias


def _group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    return rlx.group_norm(x, *_affine(x, weight, bias), num_groups=groups, eps=eps)


def _instance_norm(
    x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    weight, bias = _affine(x, weight, bias)
    if not use_input_stats:
        return rlx.batch_norm(x, weight, bias, running_mean, running_var, eps=eps)
    return rlx.instance_norm(x, weight, bias, eps=eps)


def _batch_norm(x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    weight, bias = _affine(x, weight, bias)
    if not training:
        return rlx.batch_norm(x, weight, bias, running_mean, running_var, eps=eps)
    return rlx.batch_norm_training(x, weight, bias, eps=eps)[0]


def _native_layer_norm(x, shape, weight, bias, eps):
    axes = list(range(x.ndim - len(shape), x.ndim))
    return _layer_norm(x, shape, weight, bias, eps), *_statistics(x, axes, eps)


def _statistics(x, axes, eps):
    """The mean and 1 / sqrt(variance + eps)."""
    return rlx.reduce_mean(x, axes=axes, keepdims=True), rlx.rsqrt(rlx.variance(x, axes=axes, keepdims=True) + eps)


def _native_group_norm(x, weight, bias, n, c, pixels, groups, eps):
    mean, scale = _statistics(x.reshape(n, groups, c // groups * pixels), [2], eps)
    return _group_norm(x, groups, weight, bias, eps), mean.squeeze(2), scale.squeeze(2)


def _native_batch_norm(x, weight, bias, *rest):
    """The rest: the running statistics, if any, training, momentum, eps."""
    *running, training, _, eps = rest
    if not training:
        empty = rlx.zeros((0,)).astype(x.dtype)
        return _batch_norm(x, *running, weight, bias, eps=eps), empty, empty
    y, mean, variance = rlx.batch_norm_training(x, *_affine(x, weight, bias), eps=eps)
    return y, mean.astype(x.dtype), rlx.rsqrt(variance + eps).astype(x.dtype)


def _batch_norm_with_update(x, weight, bias, running_mean, running_var, momentum, eps):
    return _native_batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)


def _local_response_norm(x, size, alpha=1e-4, beta=0.75, k=1.0):
    return rlx.local_response_norm(x, size=size, alpha=alpha, beta=beta, k=k)


def _normalize(x, p=2.0, dim=1, eps=1e-12):
    if x.ndim == 0:
        return _normalize(x.reshape(1), p, 0, eps).reshape(())
    if p < 1:  # no norm, and none of normalize's
        return x / rlx.maximum(rlx.op.norm(x, axes=[dim], ord=p, keepdims=True), eps)
    return rlx.normalize(x, p=p, axes=[dim] if isinstance(dim, int) else list(dim), eps=eps)


# ---- losses


def _loss(f, *names):
    """A loss whose options in `names` follow its operands by position or by name; reduction is the last."""

    def call(*args, reduction="mean", **options):
        operands = [a for a in args if isinstance(a, rlx.Array)]
        given = dict(zip(names, args[len(operands) :])) | options
        return f(*operands, reduction=reduction, **given)

    return call


def _weighted(f):
    """A loss per element times a weight."""

    def call(x, target, weight=None, reduction="mean", **options):
        if weight is None:
            return f(x, target, reduction=reduction, **options)
        return reduced(f(x, target, reduction="none", **options) * weight, reduction)

    return call


def _bce_with_logits(x, target, reduction="none", pos_weight=None):
    if pos_weight is None:
        return rlx.bce_with_logits_loss(x, target, reduction=reduction)
    return rlx.bce_with_logits_loss(x, target, pos_weight, reduction=reduction)


def _classes(f, soft=None):
    """A loss over classes: axis 1, or the only one. A target of floats holds probabilities."""

    def call(x, target, weight=None, ignore_index=-100, reduction="mean", **options):
        operands = (x, target) if weight is None else (x, target, weight)
        options |= {"reduction": reduction, "axis": 0 if x.ndim == 1 else 1}
        if target.dtype.is_floating:
            return soft(*operands, **options)
        return f(*operands, ignore_index=ignore_index, **options)

    return call


def _linear_cross_entropy(x, w, target, linear_bias=None, options=None, **rest):
    """The logits' classes are axis 1; w [C, .., K] of higher rank makes further axes behind it."""
    wide = lambda v: v.astype("f32") if v is not None and v.dtype in ("float16", "bfloat16") else v
    logits = rlx.op.tensordot(wide(x), wide(w), axes_a=[-1], axes_b=[-1])
    rest["weight"] = wide(rest.get("weight"))
    loss = MAPPING["nn.functional.cross_entropy"](
        logits if linear_bias is None else logits + wide(linear_bias), target, **rest
    )
    return loss.astype(x.dtype)


def _their_linear_cross_entropy(op, x, *args, options=None, **kwargs):
    """The options say how a half is computed; no other dtype has them all."""
    return op(x, *args, options=options if x.dtype.itemsize == 2 else None, **kwargs)


def _kl_div(x, target, reduction="mean", log_target=False):
    if reduction == "batchmean":
        return rlx.kl_div_loss(x, target, reduction="sum", log_target=log_target) / (x.shape[0] if x.ndim else 1)
    return rlx.kl_div_loss(x, target, reduction=reduction, log_target=log_target)


def _gaussian_nll(x, target, var, full=False, eps=1e-6, reduction="mean"):
    if isinstance(var, (int, float)):
        var = _filled(x.shape, float(var), x)
    if var.shape != x.shape and var.ndim == x.ndim - 1:
        var = var.expand_dims(-1)
    return rlx.gaussian_nll_loss(x, target, var, full=full, eps=eps, reduction=reduction)


def _soft_margin(x, target, reduction="mean"):
    return reduced(rlx.softplus(-target * x), reduction)


def _multilabel_soft_margin(x, target, weight=None, reduction="mean"):
    losses = rlx.bce_with_logits_loss(x, target, reduction="none")
    return reduced((losses if weight is None else losses * weight).mean(-1), reduction)


def _multi_margin(x, target, p=1, margin=1.0, weight=None, reduction="mean"):
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    labels = target.reshape(-1)
    own = rlx.take_along_axis(rows, labels.expand_dims(1), axis=1)
    gaps = rlx.relu(margin - own + rows) ** float(p)
    if weight is not None:
        gaps = gaps * rlx.gather(weight, labels).expand_dims(1)
    other = 1 - rlx.one_hot(labels, depth=rows.shape[1], dtype=x.dtype)
    losses = (gaps * other).sum(1) / rows.shape[1]
    return reduced(losses if x.ndim == 2 or reduction != "none" else losses.reshape(()), reduction)


def _multilabel_margin(x, target, reduction="mean"):
    """The labels of a row end before the first -1. Each is set against every class that is none of them."""
    rows, labels = (v.reshape(-1, v.shape[-1]) if v.ndim else v.reshape(1, 1) for v in (x, target))
    listed = rlx.op.cumprod((labels >= 0).astype(x.dtype), axis=1)
    places = rlx.maximum(labels, 0)
    own = rlx.take_along_axis(rows, places, axis=1)
    hits = rlx.one_hot(places, depth=rows.shape[1], dtype=x.dtype) * listed.expand_dims(-1)
    other = 1 - rlx.reduce_max(hits, axes=[1])
    gaps = rlx.relu(1 - own.expand_dims(2) + rows.expand_dims(1))
    losses = (gaps * listed.expand_dims(2) * other.expand_dims(1)).sum((1, 2)) / rows.shape[1]
    return reduced(losses if x.ndim == 2 or reduction != "none" else losses.reshape(()), reduction)


def _distance(x, y, p=2.0, eps=1e-6, keepdim=False):
    return rlx.op.norm(floats(rlx.add)(x - y, eps), axes=[-1], ord=float(p), keepdims=keepdim)


def _triplet(a, p, n, margin=1.0, swap=False, reduction="mean", distance_function=None, **norm):
    """Of bytes PyTorch makes floats only after it has taken their differences, which wrap."""
    if a.dtype != "uint8":
        return floats(rlx.triplet_margin_loss)(a, p, n, margin=margin, swap=swap, reduction=reduction, **norm)
    far = _distance(a, n, **norm)
    far = rlx.minimum(far, _distance(p, n, **norm)) if swap else far
    return reduced(rlx.relu(_distance(a, p, **norm) - far + margin), reduction)


def _cosine_similarity(x, y, dim=1, eps=1e-8):
    if x.ndim == 0 and y.ndim == 0:
        return _cosine_similarity(x.reshape(1), y.reshape(1), 0, eps)
    shape = np.broadcast_shapes(x.shape, y.shape)
    x, y = (rlx.normalize(rlx.broadcast(v, shape=shape), axes=[dim], eps=eps) for v in (x, y))
    return (x * y).sum(dim)


def _pdist(x, p=2.0):
    pairs = list(itertools.combinations(range(x.shape[0]), 2))
    if not pairs:
        return rlx.zeros((0,)).astype(x.dtype)
    i, j = (rlx.array(list(k)) for k in zip(*pairs))
    return rlx.op.norm(rlx.gather(x, i) - rlx.gather(x, j), axes=[1], ord=float(p))


# ---- the rest


def _linear(x, w, bias=None):
    y = x @ (w.T if w.ndim == 2 else w)
    return y if bias is None else y + bias


def _bilinear(x, y, w, bias=None):
    z = rlx.op.einsum(x, y, w, equation="...i,...j,kij->...k")
    return z if bias is None else z + bias


def _prelu(x, weight):
    if weight.size == 1:
        return rlx.prelu(x, weight.reshape(()))
    return rlx.prelu(x, weight.reshape([-1] + [1] * (x.ndim - 2)) if x.ndim > 1 else weight)


def _softplus(x, beta=1, threshold=20):
    return rlx.where(x * beta > threshold, x, rlx.softplus(x * beta) / beta)


def _rrelu(x, lower=1 / 8, upper=1 / 3, training=False):
    if training:
        raise NotImplementedError("drawn slopes")
    return rlx.leaky_relu(x, alpha=(lower + upper) / 2)


def _attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(q k^T) v for [.., heads, S, D], and the logsumexp of its rows."""
    if dropout_p:
        raise NotImplementedError("dropout")
    if is_causal and q.shape[-2] != k.shape[-2]:  # PyTorch counts both from the start, we from the end
        attn_mask, is_causal = rlx.op.tril(rlx.ones((1, 1, q.shape[-2], k.shape[-2]))).astype("bool"), False
    if q.ndim < k.ndim:
        q = rlx.broadcast(q, shape=[*k.shape[:-2], *q.shape[-2:]])
    four = [x.reshape([1] * (4 - x.ndim) + list(x.shape)) for x in (q, k, v)]
    options = {"num_heads": four[0].shape[1], "num_kv_heads": four[1].shape[1], "scale": scale, "layout": "head_major"}
    extra = []
    if attn_mask is not None:
        options |= {"has_mask": attn_mask.dtype == "bool", "has_bias": attn_mask.dtype != "bool"}
        extra = [attn_mask]
    y, rows = rlx.attention(*four, *extra, mask="causal" if is_causal else "none", **options)
    return y.reshape([*q.shape[:-1], v.shape[-1]]), rows


def _channel_shuffle(x, groups):
    n, c, *space = x.shape
    return rlx.swap_axes(x.reshape([n, groups, c // groups, *space]), axis1=1, axis2=2).reshape(x.shape)


def _one_hot(x, num_classes=-1):
    depth = num_classes if num_classes >= 0 else int(x.max()) + 1
    return rlx.one_hot(x, depth=depth, dtype="i64")


def _embedding(w, i, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None or scale_grad_by_freq:
        raise NotImplementedError("max_norm and scale_grad_by_freq")
    rows = rlx.gather(w, i, axis=0)
    if padding_idx is None:
        return rows
    return rlx.where((i == padding_idx % w.shape[0]).expand_dims(-1), rlx.op.stop_gradient(rows), rows)


def _embedding_bag(
    w,
    i,
    offsets=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Row k of i is bag k; or the bags begin at the offsets."""
    bags = i.shape[0] if offsets is None else offsets.shape[0] - include_last_offset
    if offsets is None:
        of = rlx.op.repeat(rlx.arange(0, bags), repeats=i.shape[1], axis=0)
    else:
        of = rlx.op.searchsorted(offsets[:bags], rlx.arange(0, i.shape[0]), right=True) - 1
    rows = _embedding(w, i.reshape(-1), padding_idx, max_norm, norm_type, scale_grad_by_freq)
    counted = rlx.broadcast(rlx.array(1.0).astype(w.dtype), shape=of.shape)
    if padding_idx is not None:
        counted = (i.reshape(-1) != padding_idx % w.shape[0]).astype(w.dtype)
    count = rlx.scatter_add(counted, of, size=bags).expand_dims(-1)
    if mode == "max":
        lowest = _filled([bags, w.shape[1]], -math.inf, w)
        kept = rlx.where(counted.expand_dims(-1) > 0, rows, _filled(rows.shape, -math.inf, w))
        return rlx.where(count > 0, rlx.scatter(lowest, of, kept, mode="max"), _filled(lowest.shape, 0.0, w))
    weights = counted if per_sample_weights is None else counted * per_sample_weights.reshape(-1)
    total = rlx.scatter_add(rows * weights.expand_dims(-1), of, size=bags)
    return total / rlx.maximum(count, 1.0) if mode == "mean" else total


def _softmin(x, dim, dtype=None):
    return along(rlx.softmax)(-x, dim, dtype)


def _safe_softmax(x, dim, dtype=None):
    """A row of -inf gives 0."""
    x = floats(lambda v: v)(x)
    none = rlx.reduce_max(x, axes=[dim], keepdims=True) == -math.inf
    zero = rlx.array(0.0).astype(x.dtype)
    return rlx.where(none, zero, along(rlx.softmax)(rlx.where(none, zero, x), dim, dtype))


def _cosine_embedding(x, y, target, margin=0.0, reduction="mean"):
    x, y = floats(lambda *v: v)(x, y)
    return rlx.cosine_embedding_loss(x, y, target.astype(x.dtype), margin=margin, reduction=reduction)


ACTIVATIONS = ["relu", "silu", "mish", "selu", "celu", "elu", "glu"]
POOLS = [(f"{kind}_pool{n}d", make(n)) for n in (1, 2, 3) for kind, make in [("avg", _avg_pool), ("max", _max_pool)]]
ADAPTIVE = [
    (f"adaptive_{kind}_pool{n}d", _adaptive(getattr(rlx, f"adaptive_{kind}_pool"), n))
    for n in (1, 2, 3)
    for kind in ("avg", "max")
]
INTERPOLATE = ["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"]

_NN = {
    **{n: getattr(rlx.op, n) for n in ACTIVATIONS},
    **dict(POOLS + ADAPTIVE),
    **{f"conv{n}d": _conv(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _conv_transpose(n) for n in (1, 2, 3)},
    **{f"max_unpool{n}d{v}": _max_unpool(n) for n in (1, 2, 3) for v in ("", ":grad")},
    **{f"pad:{m}": _pad for m in ("constant", "reflect", "replicate", "replicate_negative", "circular")},
    **{f"interpolate:{m}": _interpolate for m in INTERPOLATE},
    "glu": lambda x, dim=-1: rlx.glu(x, axis=dim),
    "hardswish": rlx.hard_swish,
    "hardsigmoid": rlx.hard_sigmoid,
    "relu6": lambda x: rlx.relu6(x) if x.dtype.is_floating else rlx.clamp(x, 0, 6),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: rlx.hard_tanh(x, low=min_val, high=max_val),
    "hardshrink": lambda x, lambd=0.5: rlx.hardshrink(x, lambd=lambd),
    "softshrink": lambda x, lambd=0.5: rlx.softshrink(x, lambd=lambd),
    "threshold": lambda x, threshold, value: rlx.threshold(x, threshold=threshold, value=value),
    "leaky_relu": lambda x, negative_slope=0.01: rlx.leaky_relu(x, alpha=negative_slope),
    "prelu": _prelu,
    "softplus": _softplus,
    "softsign": floats(rlx.softsign),
    "softmin": _softmin,
    "softmin:with_dtype": _softmin,
    "gelu": lambda x, approximate="none": (rlx.gelu if approximate == "none" else rlx.gelu_tanh)(x),
    "logsigmoid": rlx.log_sigmoid,
    "tanhshrink": floats(rlx.tanhshrink),
    "unfold": _unfold,
    "upsample_bilinear": lambda x, size=None, scale_factor=None: _interpolate(x, size, scale_factor, "bilinear", True),
    "upsample_nearest": lambda x, size=None, scale_factor=None: _interpolate(x, size, scale_factor),
    "grid_sample": _grid_sample,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    "rrelu": _rrelu,
    "local_response_norm": _local_response_norm,
    "normalize": _normalize,
    "binary_cross_entropy": _weighted(rlx.bce_loss),
    "binary_cross_entropy_with_logits": _weighted(_bce_with_logits),
    "cross_entropy": _classes(rlx.cross_entropy, rlx.soft_cross_entropy),
    "nll_loss": _classes(rlx.nll_loss),
    **{f"linear_cross_entropy{v}": _linear_cross_entropy for v in ("", ":chunked")},
    "linear_cross_entropy:chunked_none": Both(_linear_cross_entropy, _their_linear_cross_entropy),
    "kl_div": _kl_div,
    "l1_loss": _weighted(rlx.l1_loss),
    "mse_loss": _weighted(rlx.mse_loss),
    "smooth_l1_loss": _loss(rlx.smooth_l1_loss),
    "huber_loss": _loss(rlx.huber_loss),
    "hinge_embedding_loss": _loss(rlx.hinge_embedding_loss),
    "margin_ranking_loss": _loss(rlx.margin_ranking_loss),
    "cosine_embedding_loss": _cosine_embedding,
    "triplet_margin_loss": _loss(_triplet),
    "triplet_margin_with_distance_loss": _triplet,
    "gaussian_nll_loss": _gaussian_nll,
    "poisson_nll_loss": floats(_loss(rlx.poisson_nll_loss)),
    "soft_margin_loss": _soft_margin,
    "multilabel_soft_margin_loss": _multilabel_soft_margin,
    "multi_margin_loss": _multi_margin,
    "multilabel_margin_loss": _multilabel_margin,
    "cosine_similarity": _cosine_similarity,
    "pairwise_distance": _distance,
    "pdist": _pdist,
    "linear": _linear,
    "bilinear": _bilinear,
    "scaled_dot_product_attention": lambda *args, **kwargs: _attention(*args, **kwargs)[0],
    "pixel_shuffle": lambda x, upscale_factor: rlx.pixel_shuffle(x, factor=upscale_factor),
    "pixel_unshuffle": lambda x, downscale_factor: rlx.pixel_unshuffle(x, factor=downscale_factor),
    "channel_shuffle": _channel_shuffle,
    "one_hot": _one_hot,
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
}

MAPPING = {
    **{f"nn.functional.{name}": f for name, f in _NN.items()},
    **MASKED,
    "constant_pad_nd": lambda x, amounts, value=0: _pad(x, amounts, value=value),
    "native_layer_norm": _native_layer_norm,
    "native_group_norm": _native_group_norm,
    "native_batch_norm": _native_batch_norm,
    "_native_batch_norm_legit": _native_batch_norm,
    "_batch_norm_with_update": Both(_batch_norm_with_update, lambda op, *args: op(*args)[:3]),
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "torch.ops.aten._safe_softmax.default": _safe_softmax,
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "grid_sampler_2d": _grid_sampler,
    "grid_sampler_3d": _grid_sampler,
    "_upsample_bilinear2d_aa": _upsample_aa,
    "_softmax_backward_data": lambda dy, y, dim, dtype: (dy - (dy * y).sum(dim, keepdims=True)) * y,
}
