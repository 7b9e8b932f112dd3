"""A chart of ratios as SVG: a bar per row from 1 to its ratio, on a logarithmic axis, with its quartiles."""

import html
import math

LEFT, WIDTH, ROW, TOP = 300, 420, 22, 54
LOWEST, HIGHEST = 0.25, 8.0
MARKS = (0.25, 0.5, 0.8, 1, 2, 4, 8)


def _x(ratio):
    place = math.log(min(max(ratio, LOWEST), HIGHEST) / LOWEST) / math.log(HIGHEST / LOWEST)
    return round(LEFT + place * WIDTH, 1)


def bars(title, rows):
    """rows: (name, ratio, low, high, best other library)"""
    height = TOP + ROW * len(rows) + 12
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 150} {height}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="12" y="22" font-size="15" font-weight="600">{html.escape(title.capitalize())}</text>',
        '<text x="12" y="40" fill="#666">best other time / RLX: to the right RLX is faster</text>',
    ]
    for mark in MARKS:
        stroke = "#333" if mark == 1 else "#ddd"
        out.append(f'<line x1="{_x(mark)}" x2="{_x(mark)}" y1="{TOP - 4}" y2="{height - 8}" stroke="{stroke}"/>')
        out.append(f'<text x="{_x(mark)}" y="{TOP - 8}" text-anchor="middle" fill="#666">{mark:g}</text>')
    for i, (name, ratio, low, high, best) in enumerate(rows):
        y = TOP + ROW * i
        colour = "#2a7f4f" if ratio >= 1 else "#c9a227" if ratio >= 0.8 else "#b3392f"
        left, right = sorted((_x(1), _x(ratio)))
        out.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{html.escape(name)}</text>')
        out.append(f'<rect x="{left}" y="{y + 4}" width="{max(1.0, right - left):.1f}" height="{ROW - 8}" fill="{colour}"/>')
        out.append(f'<line x1="{_x(low)}" x2="{_x(high)}" y1="{y + ROW / 2}" y2="{y + ROW / 2}" stroke="#000" stroke-width="1.5"/>')
        out.append(f'<text x="{max(right, _x(1)) + 8}" y="{y + 15}" fill="#333">{ratio:.2f} <tspan fill="#888">{html.escape(best)}</tspan></text>')
    return "\n".join(out + ["</svg>", ""])
