"use strict";
// The drawings: pure functions of (what the update did, the moment t, the pokes, the width) to SVG text. Nothing is
// measured on the screen, so that the page, the docs and the film get the very same pictures.

const fix = (v) => (Math.abs(v) < 0.005 ? "0" : String(Math.round(v * 100) / 100));
const show = (v, digits = 3) =>
  v === null || v === undefined || Number.isNaN(v)
    ? "–"
    : (Math.abs(v) < 0.5 * 10 ** -digits ? 0 : v).toFixed(digits).replace("-", "\u2212");
const group = (v) => String(v).replace(/\B(?=(\d{3})+$)/g, "\u2009");
const clip01 = (v) => Math.max(0, Math.min(1, v));
const phase = (t, from, to) => {
  const p = clip01((t - from) / (to - from));
  return p * p * (3 - 2 * p);
};
const mix = (a, b, p) => a + (b - a) * p;
const esc = (s) => String(s).replace(/&/g, "&amp;").replace(/</g, "&lt;");

const text = (x, y, s, cls = "", extra = "") =>
  `<text x="${fix(x)}" y="${fix(y)}" class="${cls}" ${extra}>${esc(s)}</text>`;
const line = (x1, y1, x2, y2, cls = "", extra = "") =>
  `<line x1="${fix(x1)}" y1="${fix(y1)}" x2="${fix(x2)}" y2="${fix(y2)}" class="${cls}" ${extra}/>`;
const rect = (x, y, w, h, cls = "", extra = "") =>
  `<rect x="${fix(x)}" y="${fix(y)}" width="${fix(Math.max(0, w))}" height="${fix(Math.max(0, h))}" class="${cls}" ${extra}/>`;
const path = (d, cls = "", extra = "") => `<path d="${d}" class="${cls}" ${extra}/>`;
const points = (xs) => "M" + xs.map(([x, y]) => `${fix(x)} ${fix(y)}`).join("L");
const marks = {
  dot: (x, y, r, cls, extra = "") => `<circle cx="${fix(x)}" cy="${fix(y)}" r="${fix(r)}" class="${cls}" ${extra}/>`,
  square: (x, y, r, cls, extra = "") => rect(x - r, y - r, 2 * r, 2 * r, cls, extra),
  diamond: (x, y, r, cls, extra = "") =>
    path(
      `M${fix(x)} ${fix(y - r)}L${fix(x + r)} ${fix(y)}L${fix(x)} ${fix(y + r)}L${fix(x - r)} ${fix(y)}Z`,
      cls,
      extra,
    ),
  star: (x, y, r, cls, extra = "") =>
    path(
      points(
        Array.from({ length: 10 }, (_, j) => {
          const a = (j * Math.PI) / 5 - Math.PI / 2,
            q = j % 2 ? r * 0.45 : r;
          return [x + q * Math.cos(a), y + q * Math.sin(a)];
        }),
      ) + "Z",
      cls,
      extra,
    ),
};
const arrow = (x1, y1, x2, y2, cls) => {
  const a = Math.atan2(y2 - y1, x2 - x1),
    l = Math.hypot(x2 - x1, y2 - y1);
  if (l < 2) return "";
  const h = Math.min(8, l * 0.6),
    bx = x2 - h * Math.cos(a),
    by = y2 - h * Math.sin(a),
    w = h * 0.5;
  return (
    line(x1, y1, bx, by, cls + " stroke") +
    path(
      `M${fix(x2)} ${fix(y2)}L${fix(bx - w * Math.sin(a))} ${fix(by + w * Math.cos(a))}L${fix(bx + w * Math.sin(a))} ${fix(by - w * Math.cos(a))}Z`,
      cls + " fill",
    )
  );
};
const sym = (name, inside) => `<g data-sym="${name}">${inside}</g>`;

function nice(low, high, count = 4) {
  const span = Math.max(high - low, 1e-9),
    raw = span / count,
    power = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 5, 10].find((m) => m * power >= raw * 0.999) * power;
  const ticks = [];
  for (let v = Math.ceil(low / unit - 1e-9) * unit; v <= high + unit * 1e-9; v += unit)
    ticks.push(Math.abs(v) < unit * 1e-9 ? 0 : v);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(unit) + 1e-9)) };
}

// Labels to the right of things at heights y, pushed apart so that none lies on another.
function stacked(labels, x, gap = 14, top = 0, bottom = 1e9) {
  const sorted = labels.map((l) => ({ ...l, at: l.y })).sort((a, b) => a.y - b.y);
  for (let j = 0; j < sorted.length; j++) sorted[j].at = Math.max(sorted[j].at, j ? sorted[j - 1].at + gap : top);
  for (let j = sorted.length - 1, most = bottom; j >= 0; j--) {
    sorted[j].at = Math.min(sorted[j].at, most);
    most = sorted[j].at - gap;
  }
  return sorted.map((l) => text(x, l.at + 4, l.text, `${l.cls} s`, l.sym ? `data-sym="${l.sym}"` : "")).join("");
}

// A frame with axes, and the two scales.
function axes(x, y, w, h, xr, yr, { xlabel = "", ylabel = "", xticks = 4, yticks = 4 } = {}) {
  const X = (v) => x + ((v - xr[0]) / (xr[1] - xr[0])) * w,
    Y = (v) => y + h - ((v - yr[0]) / (yr[1] - yr[0])) * h;
  const nx = nice(xr[0], xr[1], xticks),
    ny = nice(yr[0], yr[1], yticks);
  let out = rect(x, y, w, h, "panel");
  ny.ticks.forEach((v) => {
    out += line(x, Y(v), x + w, Y(v), "grid") + text(x - 5, Y(v) + 4, show(v, ny.digits), "soft xs end");
  });
  nx.ticks.forEach((v) => {
    out += line(X(v), y + h, X(v), y + h + 3, "axis") + text(X(v), y + h + 15, show(v, nx.digits), "soft xs mid");
  });
  if (xlabel) out += text(x + w / 2, y + h + 30, xlabel, "soft s mid");
  if (ylabel) out += text(x, y - 7, ylabel, "soft s");
  return { X, Y, svg: out };
}
const trace = (values, A, shift = 0) => points(Array.from(values, (v, j) => [A.X(gridAt(j)), A.Y(v) + shift]));
function spanOf(list, pad = 0.12) {
  let low = Infinity,
    high = -Infinity;
  list.forEach((values) =>
    values.forEach((v) => {
      if (v < low) low = v;
      if (v > high) high = v;
    }),
  );
  if (high - low < 0.2) {
    low -= 0.1;
    high += 0.1;
  }
  return [low - (high - low) * pad, high + (high - low) * pad];
}
const actionLabel = () =>
  actionSize > 1 ? `${facts.action_names[0]} (of ${actionSize}; the others as in this row)` : facts.action_names[0];
const rowLabel = (S) => `row ${S.pokes.row + 1}`;
// What the critics' curves are compared with on Rail: what the policy of this update earns, and the best possible, Q*.
function rivals(R, S, state, own = R.actor) {
  if (!facts.truth) return [];
  const which = S.pokes.compare;
  return [
    ...(["earned", "both"].includes(which) ? [{ values: earnedCurve(own, state), cls: "earned", label: "earned" }] : []),
    ...(["best", "both"].includes(which) ? [{ values: bestCurve(state), cls: "exact", label: "best, Q*" }] : []),
  ];
}
// No reward on Rail is above 0, so no Q-value can be: that part of an axis is shaded.
function impossible(x, y, w, A, range) {
  if (!facts.truth || range[1] <= 0) return "";
  const to = Math.min(A.Y(0), A.Y(range[0]));
  return (
    rect(x, y, w, to - y, "cannot") + (to - y > 15 ? text(x + w - 4, y + 12, w > 240 ? "impossible: no reward is above 0" : "impossible", "bad xs end") : "")
  );
}

const steps = {};

// 0: acting. The actor's action, exploration noise around it, the environment's answer; below it, step 6's noise.
steps[0] = (R, S, t, W) => {
  const narrow = W < narrowAt,
    j = R.shown[S.pokes.row],
    f = facts.settings,
    x0 = narrow ? 40 : 70,
    w = W - x0 - (narrow ? 16 : 40),
    X = (v) => x0 + ((v + 1.6) / 3.2) * w,
    move = phase(t, 0.15, 0.5),
    answer = phase(t, 0.55, 0.95);
  const lane = (y, center, sigma, cut, taken, cls, name, where) => {
    const bell = Array.from({ length: 61 }, (_, q) => (q / 30 - 1) * Math.min(cut, 3 * sigma)),
      at = mix(center, taken, move);
    return (
      text(x0, y - 52, name, "ink s b") +
      text(W - 16, y - 52, where, "soft s end") +
      path(points(bell.map((d) => [X(clamped(center + d, 0)), y - 30 * Math.exp((-d * d) / (2 * sigma * sigma))])) + `L${fix(X(clamped(center + bell.at(-1), 0)))} ${fix(y)}L${fix(X(clamped(center + bell[0], 0)))} ${fix(y)}Z`, "bell") +
      line(x0, y, x0 + w, y, "axis") +
      [-1, 1].map((v) => line(X(v), y - 36, X(v), y + 5, "ink stroke w2")).join("") +
      [-1, 0, 1].map((v) => text(X(v), y + 18, show(v, 0), "soft s mid")).join("") +
      marks.diamond(X(center), y, 5, "actor hollow2") +
      marks.diamond(X(at), y, 6.5, `${cls} fill edge`)
    );
  };
  const own = act(R.actor, vectorAt(R.batch.state, j, 2), 1)[0],
    acted = R.batch.action[j];
  return (
    lane(92, own, f.exploration_noise, 9, clamped(own + f.exploration_noise * array(`normal.${R.u}`)[j], 0), "actor", "exploration: on the action", narrow ? "" : "the environment receives it") +
    lane(206, R.next_action[j], f.target_policy_noise, f.target_noise_clip, R.smoothed[j], "c1", "smoothing (step 6): on a′", narrow ? "" : "only y is read there") +
    text(x0, 254, narrow ? "a row of the buffer:" : "what the environment answers becomes a row of the buffer:", "soft s") +
    `<g opacity="${fix(0.25 + 0.75 * answer)}">` +
    text(x0, 280, `s = (${show(R.batch.state[2 * j], 2)}, ${show(R.batch.state[2 * j + 1], 2)}), a = ${show(acted, 2)}, r = ${show(R.batch.reward[j], 2)},`, "ink s num") +
    text(x0, 300, `s′ = (${show(R.batch.next_state[2 * j], 2)}, ${show(R.batch.next_state[2 * j + 1], 2)}), terminated = ${R.batch.terminated[j]}`, "ink s num") +
    "</g>"
  );
};

// 1: the ring of slots, and the same transitions on the plane.
function plane(x, y, w, h, labels = true) {
  const xr = [facts.plane_low[0], facts.plane_high[0]],
    yr = [facts.plane_low[1], facts.plane_high[1]];
  return axes(x, y, w, h, xr, yr, {
    xlabel: labels ? facts.state_names[0] : "",
    ylabel: labels ? (facts.state_names[1] ?? "") : "",
    xticks: w < 200 ? 2 : 4,
  });
}
function dots(A, from, to, cls, size = 1.6, every = 1) {
  const d = [];
  for (let r = from; r < to; r += every) {
    d.push(
      `M${fix(A.X(memory[r * rowSize]) - size / 2)} ${fix(A.Y(stateSize > 1 ? memory[r * rowSize + 1] : 0))}h${size}`,
    );
  }
  return path(d.join(""), `${cls} cell`, `stroke-width="${size}"`);
}
steps[1] = (R, S, t, W) => {
  const narrow = W < narrowAt,
    k = S.pokes,
    filled = facts.filled[R.u],
    added = Math.round(filled * mix(0.06, 1, phase(t, 0, 0.95)));
  const cap = k.capacity,
    kept = Math.min(added, cap),
    oldest = broken(k, "oldest");
  const cx = narrow ? 84 : 150,
    cy = narrow ? 116 : 150,
    r = narrow ? 68 : 112,
    slots = narrow ? 60 : 96;
  let ring = "";
  const head = oldest && added > cap ? 0 : (added % cap) / cap;
  for (let j = 0; j < slots; j++) {
    const a = (j / slots) * 2 * Math.PI - Math.PI / 2,
      b = ((j + 0.78) / slots) * 2 * Math.PI - Math.PI / 2;
    const part = j / slots,
      full = part < kept / cap;
    const age = (((head - part) % 1) + 1) % 1;
    const inner = r * 0.8,
      d = `M${fix(cx + r * Math.cos(a))} ${fix(cy + r * Math.sin(a))}A${r} ${r} 0 0 1 ${fix(cx + r * Math.cos(b))} ${fix(cy + r * Math.sin(b))}L${fix(cx + inner * Math.cos(b))} ${fix(cy + inner * Math.sin(b))}A${fix(inner)} ${fix(inner)} 0 0 0 ${fix(cx + inner * Math.cos(a))} ${fix(cy + inner * Math.sin(a))}Z`;
    ring += path(
      d,
      full ? "slot" : "slot-empty",
      full ? `fill-opacity="${fix(1 - 0.75 * (kept < cap ? 1 - part / Math.max(0.01, kept / cap) : age))}"` : "",
    );
  }
  const ha = head * 2 * Math.PI - Math.PI / 2;
  ring += arrow(
    cx + (r + 20) * Math.cos(ha),
    cy + (r + 20) * Math.sin(ha),
    cx + (r + 2) * Math.cos(ha),
    cy + (r + 2) * Math.sin(ha),
    "ink",
  );
  const A = narrow ? plane(206, 34, 148, 164) : plane(350, 34, 278, 232);
  const first = oldest ? 0 : added - kept,
    last = oldest ? kept : added,
    split = Math.max(first, last - Math.round(kept * 0.15));
  const many = Math.max(1, Math.ceil(kept / 4000));
  return (
    ring +
    text(cx, cy - 4, group(kept), "ink big mid", 'data-sym="memory"') +
    text(cx, cy + 14, `kept of ${group(cap)}`, "soft s mid") +
    A.svg +
    (added > kept && !oldest ? dots(A, 0, added - kept, "ghost", 1.4, Math.max(1, Math.ceil(added / 3000))) : "") +
    dots(A, first, split, "dots-old", 1.8, many) +
    dots(A, split, last, "dots-new", 2.2, many) +
    text(narrow ? 16 : 20, narrow ? 234 : 300, `${group(added)} transitions added, ${group(kept)} kept`, "ink s") +
    text(
      narrow ? 16 : 20,
      narrow ? 252 : 318,
      added > kept
        ? oldest
          ? "full: new transitions are dropped"
          : "the oldest were overwritten (gray dots)"
        : "not full yet: nothing is overwritten",
      "soft s",
    ) +
    legend(
      narrow
        ? [[16, 276], [16, 294]]
        : [[350, 318], [470, 318]],
      [["square", "dots-new", "newest 15 %"], ["square", "dots-old", "older"]],
    )
  );
};
function legend(places, entries) {
  return entries
    .map(
      ([mark, cls, label], j) =>
        marks[mark](places[j][0] + 4, places[j][1] - 4, 3.4, cls) +
        text(places[j][0] + 13, places[j][1], label, "soft s"),
    )
    .join("");
}

// 2: the policy as a map, copied into the target.
const mapSide = 25;
function policyMap(p, low, high, symmetric) {
  const states = new Float64Array(mapSide * mapSide * stateSize);
  const mean = new Float64Array(stateSize);
  for (let r = 0; r < 200; r++) for (let j = 0; j < stateSize; j++) mean[j] += memory[r * rowSize + j] / 200;
  for (let a = 0; a < mapSide; a++)
    for (let b = 0; b < mapSide; b++) {
      const at = (a * mapSide + b) * stateSize;
      states.set(mean, at);
      states[at] = mix(facts.plane_low[0], facts.plane_high[0], b / (mapSide - 1));
      if (stateSize > 1) states[at + 1] = mix(facts.plane_low[1], facts.plane_high[1], a / (mapSide - 1));
    }
  const lows = facts.low.slice(),
    highs = facts.high.slice();
  lows[0] = symmetric ? -high : low;
  highs[0] = high;
  const all = act(p, states, mapSide * mapSide, lows, highs);
  return Float64Array.from({ length: mapSide * mapSide }, (_, j) => all[j * actionSize]);
}
function mapCells(values, x, y, w, h, low, high, until) {
  const cw = w / mapSide,
    ch = h / mapSide,
    buckets = {};
  let wrong = "",
    bad = 0;
  values.forEach((v, j) => {
    const a = Math.floor(j / mapSide),
      b = j % mapSide,
      px = x + b * cw,
      py = y + h - (a + 1) * ch;
    if (v < low - 1e-9 || v > high + 1e-9) bad++;
    if (px > until) return;
    const d = `M${fix(px)} ${fix(py)}h${fix(cw + 0.15)}v${fix(ch + 0.15)}h-${fix(cw + 0.15)}z`;
    if (v < low - 1e-9 || v > high + 1e-9) {
      wrong += d;
      return;
    }
    const level = Math.round(((v - (low + high) / 2) / ((high - low) / 2)) * LEVELS);
    if (level) (buckets[`${level < 0 ? 1 : 0}${Math.abs(level)}`] ||= []).push(d);
  });
  return {
    bad,
    svg:
      Object.keys(buckets)
        .sort()
        .map((key) =>
          path(buckets[key].join(""), ["pos", "neg"][+key[0]], `fill-opacity="${fix((0.9 * +key[1]) / LEVELS)}"`),
        )
        .join("") + path(wrong, "wrong"),
  };
}
steps[2] = (R, S, t, W) => {
  const narrow = W < narrowAt,
    k = S.pokes,
    symmetric = broken(k, "symmetric"),
    B = birth();
  const low = symmetric && k.low === POKES.low ? POKES.low * 0.25 : k.low,
    high = k.high;
  const w = narrow ? 150 : 236,
    h = narrow ? 150 : 210,
    y = 30,
    x1 = narrow ? 34 : 52,
    x2 = x1 + w + (narrow ? 22 : 62);
  const own = facts.live ? policyMap(B.actor, low, high, symmetric) : array(`policy_map.${B.u}`);
  const target = facts.live ? policyMap(B.target, low, high, symmetric) : array(`policy_map_target.${B.u}`);
  const A = plane(x1, y, w, h),
    C = plane(x2, y, w, h),
    reach = phase(t, 0.05, 0.85);
  const first = mapCells(own, x1, y, w, h, low, high, 1e9),
    second = mapCells(target, x2, y, w, h, low, high, x2 + w * reach);
  let apart = 0;
  B.actor.forEach((v, j) => {
    apart = Math.max(apart, Math.abs(v - B.target[j]));
  });
  const bar = narrow ? { x: 34, y: 246, w: 292 } : { x: 52, y: 296, w: 236 };
  let scale = "";
  for (let j = -LEVELS; j <= LEVELS; j++) {
    if (j)
      scale += rect(
        bar.x + ((j + LEVELS) / (2 * LEVELS + 1)) * bar.w,
        bar.y,
        bar.w / (2 * LEVELS + 1),
        9,
        j < 0 ? "neg" : "pos",
        `fill-opacity="${fix((0.9 * Math.abs(j)) / LEVELS)}"`,
      );
  }
  const said = first.bad
    ? `${first.bad} of ${mapSide * mapSide} actions lie outside`
    : facts.loaded
      ? `largest difference of a weight: ${show(apart, 4)} (a trained pair)`
      : `largest difference of a weight: ${show(apart, 1)}`;
  return (
    A.svg +
    first.svg +
    C.svg +
    second.svg +
    text(x1 + w, y - 7, "actor", "actor-ink s b end") +
    text(x2 + w, y - 7, "target", "actor-ink s b end") +
    rect(bar.x, bar.y, bar.w, 9, "hollow") +
    scale +
    text(bar.x, bar.y + 24, show(low, 2), "soft s") +
    text(bar.x + bar.w / 2, bar.y + 24, `action (${facts.action_names[0]})`, "soft s mid") +
    text(bar.x + bar.w, bar.y + 24, show(high, 2), "soft s end") +
    (narrow
      ? text(34, 296, said, first.bad ? "bad s b" : "ink s")
      : text(x2, 300, said, first.bad ? "bad s b" : "ink s"))
  );
};
const birth = () => ({ u: 0, actor: array("actor_before.0"), target: array("actor_target_before.0") });

// 3: two critics that disagree, copies that do not.
steps[3] = (R, S, t, W) => {
  const k = S.pokes,
    B = run(0, { ...POKES, row: k.row });
  const q = [
    qCurve(B, "before", 0, k.row),
    broken(k, "twins") ? qCurve(B, "before", 0, k.row) : qCurve(B, "before", 1, k.row),
  ];
  const copies = facts.live
    ? [B.targets[0], B.targets[broken(k, "twins") ? 0 : 1]].map((p) =>
        curveOf(
          p,
          vectorAt(B.batch.state, B.shown[k.row], stateSize),
          vectorAt(B.batch.action, B.shown[k.row], actionSize),
        ),
      )
    : null;
  const A = axes(52, 30, W - 52 - 92, 232, [facts.low[0], facts.high[0]], spanOf(q, 0.25), {
    xlabel: actionLabel(),
    ylabel: `Q-value of an action, in the state of ${rowLabel(S)}`,
  });
  const upto = facts.low[0] + (facts.high[0] - facts.low[0]) * phase(t, 0.1, 0.85);
  let most = 0,
    where = 0;
  q[0].forEach((v, j) => {
    if (Math.abs(v - q[1][j]) > most) {
      most = Math.abs(v - q[1][j]);
      where = j;
    }
  });
  const cut = (values) =>
    points(
      Array.from(values, (v, j) => [gridAt(j), v])
        .filter(([a]) => a <= upto + 1e-9)
        .map(([a, v]) => [A.X(a), A.Y(v)]),
    );
  return (
    A.svg +
    (copies && upto > facts.low[0] + 0.05 ? path(cut(copies[0]), "c1 halo") + path(cut(copies[1]), "c2 halo") : "") +
    sym("q1", path(trace(q[0], A), "c1 stroke w2")) +
    sym("q2", path(trace(q[1], A), "c2 stroke w2 dashes")) +
    (most > 0 ? line(A.X(gridAt(where)), A.Y(q[0][where]), A.X(gridAt(where)), A.Y(q[1][where]), "ink stroke") : "") +
    stacked(
      [
        { y: A.Y(q[0].at(-1)), text: "critic 1", cls: "c1-ink b" },
        { y: A.Y(q[1].at(-1)), text: "critic 2", cls: "c2-ink b" },
      ],
      W - 86,
    ) +
    text(
      52,
      312,
      most > 0 ? `they disagree by up to ${show(most, 2)}` : "they never disagree: one critic twice",
      most > 0 ? "ink s" : "bad s b",
    ) +
    text(52, 330, facts.loaded ? "wide bands: the targets" : "wide bands: the targets, exact copies", "soft s")
  );
};

// 4: dots leap from the plane into the rows of a table.
steps[4] = (R, S, t, W) => {
  const narrow = W < narrowAt,
    B = R.batch,
    filled = facts.filled[R.u];
  const A = narrow ? plane(30, 30, 98, 150) : plane(44, 30, 214, 232);
  const tx = narrow ? 146 : 292,
    right = W - 6,
    top = 30,
    lane = narrow ? 24 : 27;
  const heads = narrow
    ? ["s\u2081", "s\u2082", "a", "r", "end"]
    : ["s\u2081", "s\u2082", "a", "r", "s′\u2081", "s′\u2082", "end"];
  const symbols = narrow ? ["s", "s", "a", "r", "d"] : ["s", "s", "a", "r", "s2", "s2", "d"];
  const cw = (right - tx) / heads.length;
  let out = A.svg + dots(A, 0, filled, "dots-old", 1.4, Math.max(1, Math.ceil(filled / 3000)));
  R.batch.rows.forEach((r, j) => {
    if (!R.shown.includes(j))
      out += marks.dot(A.X(B.state[j * stateSize]), A.Y(stateSize > 1 ? B.state[j * stateSize + 1] : 0), 2, "pick");
  });
  heads.forEach((head, c) => {
    out += text(tx + (c + 1) * cw - 4, top - 2, head, "soft s end", `data-sym="${symbols[c]}"`);
  });
  R.shown.forEach((j, at) => {
    const y = top + at * lane,
      px = A.X(B.state[j * stateSize]),
      py = A.Y(stateSize > 1 ? B.state[j * stateSize + 1] : 0);
    const p = phase(t, 0.05 + at * 0.09, 0.3 + at * 0.09),
      ex = tx - 6,
      ey = y + lane / 2 + 2;
    const hop = Math.sin(Math.PI * p) * -26;
    out += rect(tx - 2, y + 3, right - tx + 4, lane - 3, at === S.pokes.row ? "lane chosen" : "lane");
    if (p > 0 && p < 1) out += line(px, py, mix(px, ex, p), mix(py, ey, p) + hop, "pick stroke thin");
    out += marks.dot(mix(px, ex, p), mix(py, ey, p) + hop, 3.6, "pick b");
    if (p >= 0.98) {
      const end = B.terminated[j] ? "ended" : B.timed_out[j] ? "clock" : "";
      const s = (v) => show(v, 2),
        second = (all) => (stateSize > 1 ? s(all[j * stateSize + 1]) : "");
      const cells = [
        s(B.state[j * stateSize]),
        second(B.state),
        s(B.action[j * actionSize]),
        show(B.reward[j], narrow ? 1 : 2),
      ];
      if (!narrow) cells.push(s(B.next_state[j * stateSize]), second(B.next_state));
      cells.push(end);
      cells.forEach((cell, c) => {
        out += text(
          tx + (c + 1) * cw - 4,
          y + lane / 2 + 6,
          cell,
          c === cells.length - 1 ? "bad xs b end" : "ink xs num end",
          `data-sym="${symbols[c]}"`,
        );
      });
    }
  });
  const foot = top + 8 * lane + 24,
    note = broken(S.pokes, "newest")
      ? "the newest rows only: one short stretch of time"
      : `${batchSize} rows drawn from ${group(Math.min(filled, S.pokes.capacity))}, 8 of them shown`;
  return (
    out +
    text(narrow ? 16 : 292, narrow ? foot + 18 : foot + 4, note, broken(S.pokes, "newest") ? "bad s b" : "ink s") +
    text(
      narrow ? 16 : 292,
      narrow ? foot + 36 : foot + 22,
      "ended: the cart fell · clock: time limit reached",
      "soft s",
    )
  );
};

// 5 and 6: ticks on the action axis, one lane for each row.
function lanes(W, xr, top = 34, lane = 28) {
  const narrow = W < narrowAt,
    x = narrow ? 34 : 66,
    w = W - x - (narrow ? 10 : 20);
  const X = (v) => x + ((v - xr[0]) / (xr[1] - xr[0])) * w,
    bottom = top + 8 * lane,
    ticks = nice(xr[0], xr[1], narrow ? 4 : 6);
  let out = rect(x, top, w, 8 * lane, "panel");
  ticks.ticks.forEach((v) => {
    out += line(X(v), top, X(v), bottom, "grid") + text(X(v), bottom + 15, show(v, ticks.digits), "soft xs mid");
  });
  for (let at = 0; at < 8; at++)
    out += text(x - 8, top + (at + 0.5) * lane + 4, narrow ? at + 1 : `row ${at + 1}`, "soft s end");
  return { X, x, w, top, bottom, lane, Y: (at) => top + (at + 0.5) * lane, svg: out };
}
function rangeWalls(L) {
  return [facts.low[0], facts.high[0]]
    .map(
      (v, j) =>
        line(L.X(v), L.top - 4, L.X(v), L.bottom, "ink stroke w2") +
        text(L.X(v) + (j ? -4 : 4), L.top - 9, j ? "highest" : "lowest", j ? "ink s end" : "ink s"),
    )
    .join("");
}
const chosenLane = (L, S) => rect(L.x, L.top + S.pokes.row * L.lane, L.w, L.lane, "lane chosen");
function widened(by) {
  const half = (facts.high[0] - facts.low[0]) / 2;
  return [facts.low[0] - by * half, facts.high[0] + by * half];
}
steps[5] = (R, S, t, W) => {
  const L = lanes(W, widened(0.15)),
    online = broken(S.pokes, "online");
  let out = L.svg + chosenLane(L, S) + rangeWalls(L),
    most = 0;
  R.shown.forEach((j, at) => {
    const target = R.next_target[j * actionSize],
      other = facts.live ? R.next_online[j * actionSize] : R.next_online[at * actionSize];
    const p = phase(t, 0.04 + at * 0.08, 0.34 + at * 0.08),
      x = mix(L.x, L.X(R.next_action[j * actionSize]), p);
    most = Math.max(most, Math.abs(target - other));
    out +=
      line(L.x, L.Y(at), x, L.Y(at), "actor stroke thin") +
      (p > 0.98
        ? line(
            L.X(online ? target : other),
            L.Y(at) - 8,
            L.X(online ? target : other),
            L.Y(at) + 8,
            "soft-stroke stroke w2",
          )
        : "") +
      sym("a2", marks.diamond(x, L.Y(at), 6.5, online ? "actor hollow2" : "actor fill edge"));
  });
  return (
    out +
    text(
      L.x,
      L.bottom + 34,
      online ? "the online actor's: it changes in step 13" : "a′ of the target actor, for each row's next state s′",
      online ? "bad s b" : "ink s",
    ) +
    text(
      L.x,
      L.bottom + 52,
      `gray tick: the ${online ? "target" : "online"} actor's; up to ${show(most, 3)} apart`,
      "soft s",
    )
  );
};
steps[6] = (R, S, t, W) => {
  const k = S.pokes,
    half = (facts.high[0] - facts.low[0]) / 2,
    L = lanes(W, widened(0.75), 34, 28);
  let out = L.svg + chosenLane(L, S) + rangeWalls(L),
    outside = 0;
  const one = phase(t, 0.2, 0.5),
    two = phase(t, 0.62, 0.9),
    inPanel = (v) => Math.max(L.x, Math.min(L.x + L.w, v));
  R.shown.forEach((j, at) => {
    const a = R.next_action[j * actionSize],
      noisy = R.noisy[j * actionSize],
      end = R.smoothed[j * actionSize],
      y = L.Y(at) + 9;
    const sigma = k.sigma * half,
      c = k.clip * half,
      limit = broken(k, "noclip") ? 3 * sigma : Math.min(c, 4 * sigma);
    if (sigma > 0) {
      const bell = [];
      for (let q = -24; q <= 24; q++) {
        const d = (q / 24) * limit;
        bell.push([inPanel(L.X(a + d)), y - 15 * Math.exp((-d * d) / (2 * sigma * sigma))]);
      }
      out += path(
        points(bell) + `L${fix(inPanel(L.X(a + limit)))} ${fix(y)}L${fix(inPanel(L.X(a - limit)))} ${fix(y)}Z`,
        "bell",
      );
    }
    if (!broken(k, "noclip"))
      out += [a - c, a + c].map((v) => line(L.X(v), y - 9, L.X(v), y, "soft-stroke stroke")).join("");
    const x = inPanel(mix(mix(L.X(a), L.X(noisy), one), L.X(end), two));
    out +=
      line(L.X(a), y - 2, inPanel(L.X(mix(a, noisy, one))), y - 2, "actor stroke thin") +
      marks.diamond(L.X(a), y - 5, 3, "actor hollow2");
    out += sym(
      "smooth",
      marks.diamond(
        x,
        y - 5,
        6,
        `actor fill edge${end < facts.low[0] - 1e-9 || end > facts.high[0] + 1e-9 ? " alarm" : ""}`,
      ),
    );
  });
  R.smoothed.forEach((v, j) => {
    if (v < facts.low[j % actionSize] - 1e-6 || v > facts.high[j % actionSize] + 1e-6) outside++;
  });
  const said =
    t < 0.2
      ? "a′ of the target actor, and the noise around it"
      : t < 0.56
        ? "move 1: add the noise, at most ±c"
        : broken(k, "noclamp")
          ? `no move 2: ${outside} of ${batchSize * actionSize} lie outside the range`
          : "move 2: back inside the range";
  const wrong = broken(k, "onenoise")
    ? `every row is moved by the same ${show(R.blur[0], 3)}`
    : broken(k, "noclip")
      ? `noise of up to ${show(Math.max(...R.blur.map(Math.abs)), 2)}, though c = ${show(k.clip * half, 2)}`
      : "";
  return (
    out +
    text(L.x, L.bottom + 34, wrong || said, wrong || (broken(k, "noclamp") && t >= 0.56) ? "bad s b" : "ink s") +
    text(L.x, L.bottom + 52, `σ = ${show(k.sigma, 2)}, c = ${show(k.clip, 2)} of half the range`, "soft s")
  );
};

// 7 and 8: two target curves, read at a'.
function curvePlot(R, S, W, kind, states, extra, options = {}) {
  const q = [qCurve(R, kind, 0, S.pokes.row), qCurve(R, kind, 1, S.pokes.row)];
  const others = rivals(R, S, states, kind === "target" ? R.actorTarget : R.actor);
  const all = [...q, ...extra.map((v) => [v])];
  let range = spanOf(all, 0.12);
  const wide_ = spanOf([...all, ...others.map((o) => o.values)], 0.08);
  // A compared curve may lie far away (a fall costs 60): then it is cut off rather than flattening the rest.
  if (wide_[1] - wide_[0] < 3.5 * (range[1] - range[0])) range = wide_;
  const w = options.w ?? W - 52 - 92,
    h = options.h ?? 232;
  const A = axes(52, 30, w, h, [facts.low[0], facts.high[0]], range, { xlabel: actionLabel(), ylabel: options.ylabel });
  const id = `cut-${kind}-${S.step}-${fix(w)}`;
  const inside = `<clipPath id="${id}"><rect x="52" y="30" width="${fix(w)}" height="${fix(h)}"/></clipPath>`;
  const clipped = others.map((o) => path(trace(o.values, A), `${o.cls} stroke`)).join("");
  const labels = others
    .filter((o) => A.Y(o.values.at(-1)) > 26 && A.Y(o.values.at(-1)) < 36 + h)
    .map((o) => ({ y: A.Y(o.values.at(-1)), text: o.label, cls: `${o.cls}-ink` }));
  return { A, q, w, h, labels, svg: impossible(52, 30, w, A, range) + A.svg.replace('class="panel"', 'class="panel clear"') + inside + `<g clip-path="url(#${id})">${clipped}</g>` };
}
const nextStateOf = (R, S) => vectorAt(R.batch.next_state, R.shown[S.pokes.row], stateSize);
const stateOf = (R, S) => vectorAt(R.batch.state, R.shown[S.pokes.row], stateSize);
steps[7] = (R, S, t, W) => {
  const j = R.shown[S.pokes.row],
    a1 = R.smoothed[j * actionSize],
    a2 = R.second[j * actionSize],
    v1 = R.target_q_values[0][j],
    v2 = R.target_q_values[1][j];
  const P = curvePlot(R, S, W, "target", nextStateOf(R, S), [v1, v2], {
      ylabel: `Q-value in the next state s′ of ${rowLabel(S)}`,
    }),
    A = P.A;
  const p = phase(t, 0.05, 0.45),
    read = t > 0.55,
    at = (v) => clamped(v, 0),
    same = Math.abs(a1 - a2) < 1e-9;
  let out =
    P.svg +
    sym("q1t", path(trace(P.q[0], A), "c1 stroke w2 dashed")) +
    sym("q2t", path(trace(P.q[1], A), "c2 stroke w2 dashed"));
  out +=
    line(A.X(at(a1)), mix(262, 30, p), A.X(at(a1)), 262, "actor stroke") +
    marks.diamond(A.X(at(a1)), 262, 6, "actor fill edge");
  if (!same)
    out +=
      line(A.X(a2), mix(262, 30, p), A.X(a2), 262, "actor stroke dashed") +
      marks.diamond(A.X(a2), 262, 6, "actor hollow2");
  if (read)
    out += marks.dot(A.X(at(a1)), A.Y(v1), 5, "c1 fill edge") + marks.square(A.X(at(a2)), A.Y(v2), 4.6, "c2 fill edge");
  out += stacked(
    [
      { y: A.Y(P.q[0].at(-1)), text: "Q1′", cls: "c1-ink b" },
      { y: A.Y(P.q[1].at(-1)), text: "Q2′", cls: "c2-ink b" },
      ...P.labels,
    ],
    W - 86,
    14,
    36,
    30 + P.h - 4,
  );
  return (
    out +
    text(52, 312, `ã = ${show(a1, 3)}:  Q1′ = ${show(v1, 3)},  Q2′ = ${show(v2, 3)}`, "ink s num") +
    text(
      52,
      330,
      same ? "one ã for both: only the critics differ" : "each critic got its own noise",
      same ? "soft s" : "bad s b",
    )
  );
};
steps[8] = (R, S, t, W) => {
  const narrow = W < narrowAt,
    j = R.shown[S.pokes.row],
    kept = R.next_q[j],
    k = S.pokes;
  const wrong = ["mean", "max", "first"].find((name) => broken(k, name));
  const P = curvePlot(R, S, W, "target", nextStateOf(R, S), [kept], {
      w: narrow ? W - 144 : 340,
      h: narrow ? 156 : 232,
      ylabel: `Q-value in s′ of ${rowLabel(S)}`,
    }),
    A = P.A;
  const rule = { mean: (a, b) => (a + b) / 2, max: Math.max, first: (a) => a }[wrong] || Math.min;
  const kept_ = Array.from(P.q[0], (v, g) => rule(v, P.q[1][g])),
    grow = phase(t, 0.1, 0.7);
  let out =
    P.svg +
    path(trace(P.q[0], A), "c1 stroke w1 dashed") +
    path(trace(P.q[1], A), "c2 stroke w1 dashed") +
    // Which curve a function in the place of this step would follow is not known: only its values are.
    sym(
      "min",
      replaced(8) ? "" : path(
        points(kept_.slice(0, Math.max(2, Math.round(GRID * grow))).map((v, g) => [A.X(gridAt(g)), A.Y(v)])),
        wrong ? "bad stroke w4" : "ink stroke w4",
      ),
    );
  const a1 = clamped(R.smoothed[j * actionSize], 0);
  out +=
    line(A.X(a1), A.Y(kept), A.X(a1), 30 + P.h, "actor stroke thin") +
    marks.dot(A.X(a1), A.Y(kept), 5, wrong ? "bad fill edge" : "ink fill edge");
  out += stacked(
    [
      { y: A.Y(P.q[0].at(-1)), text: "Q1′", cls: "c1-ink b" },
      { y: A.Y(P.q[1].at(-1)), text: "Q2′", cls: "c2-ink b" },
      ...P.labels,
    ],
    52 + P.w + 6,
    14,
    36,
    30 + P.h - 4,
  );
  // All shown rows at once, each around the mean of its two Q-values: now the one is lower, now the other.
  const half = (r) => (R.target_q_values[0][r] - R.target_q_values[1][r]) / 2,
    middle = (r) => (R.target_q_values[0][r] + R.target_q_values[1][r]) / 2;
  const reach = Math.max(...R.shown.map((r) => Math.abs(half(r))), 0.01) * 1.25,
    x0 = narrow ? 52 : 486,
    w0 = narrow ? W - 144 : 146;
  const D = axes(x0, narrow ? 232 : 30, w0, narrow ? 56 : 232, [0, 8], [-reach, reach], {
    xticks: 0.5,
    yticks: narrow ? 2 : 4,
  });
  out +=
    D.svg.replace(/<line[^>]*class="axis"[^>]*>|<text[^>]*mid"[^>]*>[^<]*<\/text>/g, "") +
    line(x0, D.Y(0), x0 + w0, D.Y(0), "axis");
  R.shown.forEach((r, at) => {
    const x = x0 + ((at + 0.5) / 8) * w0,
      y1 = D.Y(half(r)),
      y2 = D.Y(-half(r)),
      y = D.Y(R.next_q[r] - middle(r));
    out +=
      (at === k.row ? rect(x - w0 / 16, D.Y(reach), w0 / 8, D.Y(-reach) - D.Y(reach), "lane chosen") : "") +
      line(x, y1, x, y2, "soft-stroke stroke") +
      marks.dot(x, y1, 3, "c1 fill") +
      marks.square(x, y2, 2.8, "c2 fill") +
      (t > 0.7 ? marks.dot(x, y, 5.2, wrong ? "bad ring" : "ink ring") : "");
  });
  out += text(
    x0 + w0 / 2,
    narrow ? 304 : 280,
    narrow ? "rows 1 to 8, each around its mean" : "rows, around their means",
    "soft xs mid",
  );
  const y = narrow ? 326 : 316;
  const said = wrong
    ? { mean: "the mean", max: "the larger", first: "critic 1 alone" }[wrong] +
      ` is kept: ${show(R.next_q.reduce((a, b) => a + b, 0) / batchSize - minMean(R), 2)} more on average`
    : `kept: ${show(kept, 3)}`;
  return (out + text(52, y, said, wrong ? "bad s b" : "ink s num"));
};
const minMean = (R) => R.target_q_values[0].reduce((s, v, j) => s + Math.min(v, R.target_q_values[1][j]), 0) / batchSize;
// 9: reward and discounted future, stacked; after a true end the second block falls away.
steps[9] = (R, S, t, W) => {
  const k = S.pokes,
    narrow = W < narrowAt,
    future = R.next_q.map((v) => k.gamma * v);
  const all = (j) => [0, R.batch.reward[j], R.batch.reward[j] + future[j], R.y[j]];
  // A fall costs so much that the other rows would vanish beside it: its bar is cut off at the edge, with its number.
  const calmRows = R.shown.filter((j) => !R.batch.terminated[j]),
    ends = (calmRows.length ? calmRows : R.shown).flatMap(all);
  const low = Math.min(...ends),
    high = Math.max(...ends),
    pad = (high - low) * 0.08 + 0.2,
    L = lanes(W, [low - pad, high + pad * (narrow ? 1.6 : 1)], 26, 29);
  const X = (v) => Math.max(L.x, Math.min(L.x + L.w, L.X(v))),
    cutAt = (v) => L.X(v) < L.x - 0.5 || L.X(v) > L.x + L.w + 0.5;
  let out = L.svg + chosenLane(L, S) + line(L.X(0), L.top, L.X(0), L.bottom, "ink stroke");
  const bar = (from, to, y, cls) => rect(Math.min(X(from), X(to)), y, Math.abs(X(to) - X(from)), 11, cls);
  const grow = phase(t, 0.05, 0.3),
    add = phase(t, 0.3, 0.55),
    fall = phase(t, 0.6, 0.9);
  R.shown.forEach((j, at) => {
    const r = R.batch.reward[j],
      y = L.Y(at) - 5,
      dead = R.ended[j] === 1,
      to = r + future[j] * add,
      cut = cutAt(r);
    out += sym("r", bar(0, r * grow, y, "reward"));
    if (!dead && !cut) out += sym("min", bar(r, to, y + 2, "future"));
    else if (!cut && fall < 1)
      out += `<g opacity="${fix(1 - fall)}" transform="translate(0 ${fix(fall * 26)}) rotate(${fix(fall * 12)} ${fix(X(r))} ${fix(y)})">${bar(r, to, y + 2, "future")}</g>`;
    else if (cut && fall < 1)
      out += `<g opacity="${fix(dead ? 1 - fall : 1)}" transform="translate(0 ${fix(dead ? fall * 26 : 0)})">${rect(L.x + 8, y + 2, 34 * add, 11, "future")}</g>`;
    else if (cut && !dead) out += rect(L.x + 8, y + 2, 34, 11, "future");
    if (t > 0.56)
      out += sym(
        "y",
        marks.star(Math.max(L.x + 9, X(mix(dead ? r + future[j] : R.y[j], R.y[j], fall))), y + 5.5, 7, "ystar"),
      );
    const note =
      (cut ? `${show(r, 1)}${dead || !R.batch.terminated[j] ? "" : ` − ${show(-future[j], 1)}`}, ` : "") +
      (R.batch.terminated[j] ? "ended" : R.batch.timed_out[j] ? "time-out" : k.dead && at === k.row ? "ended" : "");
    const edge = Math.min(X(0), X(r), X(r + future[j]), X(R.y[j])) - 12;
    if (note)
      out += cut
        ? text(L.x + L.w / 2, y + 10, note, "on-bar s b mid")
        : edge - L.x > 80
          ? text(edge, y + 10, note, `${dead ? "bad" : "soft"} s b end`)
          : text(L.x + L.w - 6, y + 10, note, `${dead ? "bad" : "soft"} s b end`);
  });
  const lx = narrow ? 34 : 66;
  return (
    out +
    legend(
      [[lx, L.bottom + 36], [lx + (narrow ? 84 : 100), L.bottom + 36]],
      [
        ["square", "reward", "reward r"],
        ["square", "future", `γ · min, γ = ${show(k.gamma, 2)}`],
      ],
    ) +
    marks.star(lx + (narrow ? 222 : 260), L.bottom + 32, 6, "ystar") +
    text(lx + (narrow ? 232 : 271), L.bottom + 36, "y", "soft s") +
    text(
      lx,
      L.bottom + 56,
      broken(k, "nodeath")
        ? "y counts a future that does not exist"
        : broken(k, "timeout")
          ? "the time-out is treated as a termination"
          : "after a termination nothing follows: y = r",
      broken(k, "nodeath") || broken(k, "timeout") ? "bad s b" : "ink s",
    )
  );
};

// 10: the online curves at the stored action, against y.
steps[10] = (R, S, t, W) => {
  const j = R.shown[S.pokes.row],
    a = R.asked[j * actionSize],
    y = R.y[j],
    own = broken(S.pokes, "ownaction");
  const P = curvePlot(R, S, W, "before", stateOf(R, S), [y, R.q[0][j], R.q[1][j]], {
      ylabel: `Q-value in the state s of ${rowLabel(S)}`,
    }),
    A = P.A;
  const p = phase(t, 0.05, 0.4),
    read = t > 0.45,
    error = phase(t, 0.6, 0.9),
    x = A.X(clamped(a, 0));
  let out =
    P.svg +
    sym("q1", path(trace(P.q[0], A), "c1 stroke w2")) +
    sym("q2", path(trace(P.q[1], A), "c2 stroke w2 dashes"));
  out += sym(
    "a",
    line(x, mix(262, 30, p), x, 262, "ink stroke thin") +
      marks.diamond(x, 262, 5, own ? "bad fill edge" : "ink fill edge"),
  );
  if (read) {
    out +=
      line(x - 5, A.Y(R.q[0][j]), x - 5, mix(A.Y(R.q[0][j]), A.Y(y), error), "c1 stroke w3") +
      line(x + 5, A.Y(R.q[1][j]), x + 5, mix(A.Y(R.q[1][j]), A.Y(y), error), "c2 stroke w3") +
      marks.dot(x - 5, A.Y(R.q[0][j]), 5, "c1 fill edge") +
      marks.square(x + 5, A.Y(R.q[1][j]), 4.6, "c2 fill edge");
  }
  out += sym("y", marks.star(x, A.Y(y), 9, "ystar"));
  out += stacked(
    [
      { y: A.Y(P.q[0].at(-1)), text: "Q1", cls: "c1-ink b" },
      { y: A.Y(P.q[1].at(-1)), text: "Q2", cls: "c2-ink b" },
      ...P.labels,
    ],
    W - 86,
    14,
    36,
    30 + P.h - 4,
  );
  return (
    out +
    text(52, 312, `Q1 = ${show(R.q[0][j], 3)},  Q2 = ${show(R.q[1][j], 3)},  y = ${show(y, 3)}`, "ink s num") +
    text(
      52,
      330,
      own ? "another action than the one that earned r" : "the stored action: for it alone r and s′ are known",
      own ? "bad s b" : "soft s",
    )
  );
};

// 11: every squared error as a square of that area, on one scale; what is too small to be seen stands in a lens with its
// own. Beside them the loss, in which the rows that terminated are set apart.
steps[11] = (R, S, t, W) => {
  const narrow = W < narrowAt,
    wrong = broken(S.pokes, "broadcast"),
    x0 = narrow ? 26 : 56,
    cell = narrow ? 25 : 42,
    top = 40,
    errors = R.shown.map((j) => R.q[0][j] - R.y[j]),
    small = R.shown.map((j, at) => at).filter((at) => !R.batch.terminated[R.shown[at]]),
    most = Math.max(...errors.map(Math.abs), 0.01),
    near = Math.max(...small.map((at) => Math.abs(errors[at])), 0.01),
    grow = phase(t, 0.05, 0.4),
    pour = phase(t, 0.45, 0.85);
  let out = "";
  if (wrong) {
    // (B, 1) against (B,): every score is compared with every target.
    const side = narrow ? 22 : 27,
      all = R.shown.map((a) => R.shown.map((b) => R.q[0][a] - R.y[b])),
      big = Math.max(...all.flat().map(Math.abs), 0.1);
    all.forEach((list, a) =>
      list.forEach((e, b) => {
        const s = Math.max(1, (Math.abs(e) / big) * (side - 3)) * (0.3 + 0.7 * grow);
        out += rect(x0 + b * side + (side - s) / 2, top + a * side + (side - s) / 2, s, s, a === b ? "c1 fill" : "bad fill", 'fill-opacity="0.75"');
      }),
    );
    out +=
      text(x0, top - 12, `8 × 8 of ${batchSize} × ${batchSize} squares`, "bad s b") +
      text(x0, top + 8 * side + 18, "blue: the right ones", "soft s");
  } else {
    const zoom = most / near,
      lens = zoom > 1.5,
      squares = (y, scale, list) =>
        list.forEach((at) => {
          const side = Math.max(0.8, (Math.abs(errors[at]) / scale) * (cell - 4)) * grow;
          out +=
            rect(x0 + (at + 0.5) * cell - side / 2, y - side, side, side, `c1 fill${at === S.pokes.row ? " edge2" : ""}`, 'fill-opacity="0.85" data-sym="q1"') +
            text(x0 + (at + 0.5) * cell, y + 15, at + 1, `soft xs mid${at === S.pokes.row ? " b" : ""}`);
        });
    out += text(x0, top - 12, narrow ? "(Q1 − y)² of 8 rows, one scale" : "(Q1 − y)² of the eight rows: areas on one scale", "c1-ink s b");
    squares(top + cell + 14, most, [...errors.keys()]);
    if (lens) {
      const y = top + 2 * cell + 56;
      out +=
        rect(x0 - 6, y - 6, 8 * cell + 12, cell + 52, "card", 'rx="6"') +
        text(x0, y + 12, `lens: sides ×${show(zoom, zoom < 10 ? 1 : 0)}, without the fall`, "ink s");
      squares(y + cell + 22, near, small);
    }
  }
  const bx = narrow ? 246 : 440,
    bw = narrow ? 36 : 66,
    base = 262,
    tall = 196,
    scale = Math.max(R.loss, trueLoss(R)) * 1.05,
    up = wrong ? phase(t, 0.3, 0.8) : pour;
  out += line(bx - 6, base, W - 6, base, "axis");
  [0, 1].forEach((twin) => {
    const h = (R.losses[twin] / scale) * tall * up,
      x = bx + twin * (bw + (narrow ? 14 : 24)),
      cls = twin ? "c2" : "c1",
      share = fallShare(R, twin);
    out +=
      rect(x, base - h, bw, h, wrong ? "bad fill" : `${cls} fill`, 'fill-opacity="0.9"') +
      (!wrong && share > 0 ? rect(x, base - h, bw, h * share, "falls") : "") +
      text(x + bw / 2, base + 16, `MSE ${twin + 1}`, "soft s mid") +
      (up > 0.02 ? text(x + bw / 2, base - h - 6, show(R.losses[twin], 2), "ink s num mid") : "") +
      (!wrong && up > 0.9 && share > 0 ? text(x + bw / 2, base - h + 15, `${narrow ? "" : "falls "}${Math.round(share * 100)} %`, "on-fall xs b mid") : "");
  });
  const said = wrong
    ? `loss = ${show(R.loss, 2)}, but it should be ${show(trueLoss(R), 2)}`
    : replaced(11)
      ? `${replaced(11).function}: loss = ${show(R.loss, 3)}`
      : `loss = ${show(R.losses[0], 3)} + ${show(R.losses[1], 3)} = ${show(R.loss, 3)}`;
  return out + text(narrow ? 26 : 56, 318, said, wrong ? "bad s b" : "ink s num", 'data-sym="loss"');
};
// How much of a critic's loss comes from the rows of the batch that terminated.
function fallShare(R, twin) {
  let all = 0,
    falls = 0;
  R.q[twin].forEach((q, j) => {
    const square = (q - R.y[j]) ** 2;
    all += square;
    if (R.batch.terminated[j]) falls += square;
  });
  return all > 0 ? falls / all : 0;
}
const trueLoss = (R) => R.q.reduce((s, q) => s + q.reduce((a, v, j) => a + (v - R.y[j]) ** 2, 0) / batchSize, 0);

// 12: the curves move. At true scale hardly to be seen; a lens shows the drawn row, and a cloud all rows of the batch.
const gains = (R, twin) => R.y.map((y, j) => Math.abs(R.q[twin][j] - y) - Math.abs(R.qAfter[twin][j] - y));
const approaching = (R) => {
  const [one, two] = [gains(R, 0), gains(R, 1)];
  return one.filter((v, j) => v > 0 && two[j] > 0).length;
};
function cloud(R, S, t, x, y, w, h) {
  const both = [gains(R, 0), gains(R, 1)],
    error = (twin, j) => R.q[twin][j] - R.y[j],
    bend = (v) => Math.sign(v) * Math.log10(1 + Math.abs(v)),
    reach = Math.max(...both.flatMap((g) => Array.from(g, Math.abs)), 1e-4) * 1.15,
    far = Math.max(...[0, 1].flatMap((twin) => Array.from(R.y, (_, j) => Math.abs(bend(error(twin, j))))), 0.3) * 1.08,
    p = phase(t, 0.62, 0.95),
    X = (v) => x + w / 2 + (bend(v) / far) * (w / 2),
    Y = (v) => y + h / 2 - (v / reach) * (h / 2);
  let out = rect(x, y, w, h, "panel") + line(x, Y(0), x + w, Y(0), "axis") + line(X(0), y, X(0), y + h, "grid");
  [-100, -10, -1, 1, 10, 100].forEach((v) => {
    if (Math.abs(bend(v)) < far) out += line(X(v), y + h, X(v), y + h + 3, "axis") + text(X(v), y + h + 15, show(v, 0), "soft xs mid");
  });
  both.forEach((gain, twin) =>
    gain.forEach((v, j) => {
      const cls = `${twin ? "c2" : "c1"} ${R.batch.terminated[j] ? "hollow2" : "fill"}`;
      out += marks[twin ? "square" : "dot"](X(error(twin, j)), Y(v * p), 2.6, cls, 'fill-opacity="0.75"');
    }),
  );
  const j = R.shown[S.pokes.row];
  [0, 1].forEach((twin) => {
    out += marks.dot(X(error(twin, j)), Y(both[twin][j] * p), 6.5, "ink ring");
  });
  return (
    out +
    text(x, y - 7, `all ${batchSize} rows`, "soft s") +
    text(x + 4, y + 13, "closer to y", "ink xs") +
    text(x + 4, y + h - 6, "farther", "ink xs") +
    text(x + w / 2, y + h + 30, "Q − y before", "soft s mid")
  );
}
// The drawn row's two Q-values, before and after, on a scale of their own.
function lensOf(R, j, p, x, y, w, h) {
  const was = [0, 1].map((twin) => R.q[twin][j]),
    is = [0, 1].map((twin) => R.qAfter[twin][j]),
    most = Math.max(...[0, 1].map((twin) => Math.abs(is[twin] - was[twin])), 1e-6) * 1.25,
    Y = (d) => y + h / 2 - (d / most) * (h / 2 - 8);
  let out = rect(x, y, w, h, "card", 'rx="6"') + text(x, y - 7, "lens: this row", "soft s") + line(x + 4, Y(0), x + w - 4, Y(0), "grid");
  [0, 1].forEach((twin) => {
    const at = x + w * (twin ? 0.76 : 0.24),
      cls = twin ? "c2" : "c1",
      move = is[twin] - was[twin],
      mark = marks[twin ? "square" : "dot"];
    out +=
      mark(at, Y(0), 3.6, `${cls} hollow2`) +
      (p > 0 ? arrow(at, Y(0), at, Y(move * p), cls) : "") +
      mark(at, Y(move * p), 4.6, `${cls} fill edge`) +
      text(at, y + h + 15, `Q${twin + 1}`, `${cls}-ink xs mid`) +
      (p > 0.9 ? text(at, y + h + 30, `${move > 0 ? "+" : ""}${show(move, 3)}`, "ink xs num mid") : "") +
      text(at, R.y[j] > was[twin] ? y + 12 : y + h - 5, R.y[j] > was[twin] ? "↑ y" : "↓ y", "ink xs b mid");
  });
  return out;
}
steps[12] = (R, S, t, W) => {
  const k = S.pokes,
    j = R.shown[k.row],
    y = R.y[j],
    narrow = W < narrowAt,
    p = phase(t, 0.62, 0.95),
    whole = Boolean(R.qAfter),
    h = narrow ? 118 : 214,
    curves = ["before", "after"].map((when) => [0, 1].map((twin) => qCurve(R, when, twin, k.row)));
  const P = curvePlot(R, S, W, "before", stateOf(R, S), [y, R.q[0][j], R.q[1][j]], {
      ylabel: `Q-value in the state s of ${rowLabel(S)}`,
      w: whole && !narrow ? 204 : W - 144,
      h,
    }),
    A = P.A,
    at = clamped(R.asked[j * actionSize], 0),
    x = A.X(at);
  const moved = curves[0].map((q, twin) => Array.from(q, (v, g) => v + (curves[1][twin][g] - v) * p));
  let out =
    P.svg +
    sym("q1", path(trace(moved[0], A), "c1 stroke w2")) +
    sym("q2", path(trace(moved[1], A), "c2 stroke w2 dashes")) +
    line(x, 30, x, 30 + h, "ink stroke thin") +
    [0, 1].map((twin) => marks[twin ? "square" : "dot"](x, A.Y(between(moved[twin], at)), 4.6, `${twin ? "c2" : "c1"} fill edge`)).join("") +
    sym("y", marks.star(x, A.Y(y), 9, "ystar")) +
    stacked(
      [
        { y: A.Y(moved[0].at(-1)), text: "Q1", cls: "c1-ink b" },
        { y: A.Y(moved[1].at(-1)), text: "Q2", cls: "c2-ink b" },
        ...P.labels.map((label) => ({ ...label, text: label.text.replace("best, ", "") })),
      ],
      52 + P.w + 6,
      14,
      36,
      26 + h,
    );
  if (whole) out += narrow ? lensOf(R, j, p, 40, 204, 92, 62) + cloud(R, S, t, 160, 204, 190, 62) : lensOf(R, j, p, 314, 30, 110, h) + cloud(R, S, t, 450, 30, 180, h);
  const wrong = broken(k, "leak") ? "the targets move too, and y with them" : broken(k, "onecritic") ? "critic 2 is not trained" : "";
  const said =
    t < 0.6
      ? "the gradient runs back through both critics"
      : R.lossesAfter
        ? `loss of critic 1: ${show(R.losses[0], 3)} → ${show(R.lossesAfter[0], 3)}${narrow ? "" : `, of critic 2: ${show(R.losses[1], 3)} → ${show(R.lossesAfter[1], 3)}`}`
        : "one optimizer step";
  return (
    out +
    text(narrow ? 16 : 52, 318, wrong || said, wrong ? "bad s b" : "ink s num", 'data-sym="loss"') +
    text(
      narrow ? 16 : 52,
      336,
      k.rate > 1
        ? `learning rate ×${k.rate}: a step ${k.rate} times as long`
        : t < 0.6
          ? `★ is y of ${rowLabel(S)}${narrow ? "" : "; ringed: the drawn row; hollow: rows that terminated"}`
          : whole
            ? `${approaching(R)} of ${batchSize} rows come closer to y by both critics`
            : "recorded",
      "soft s",
    )
  );
};

// 13: uphill on critic 1, every second update.
function counter(R, k, W, y) {
  const first = R.number - (R.number % 8 === 0 ? 7 : (R.number % 8) - 1),
    w = Math.min(58, (W - 20) / 8),
    x0 = (W - 8 * w) / 2;
  let out = "";
  for (let j = 0; j < 8; j++) {
    const n = first + j,
      turn = n % k.delay === 0,
      here = n === R.number;
    out +=
      rect(x0 + j * w + 2, y, w - 4, 24, `count${turn ? " turn" : ""}${here ? " here" : ""}`, 'rx="4"') +
      text(
        x0 + (j + 0.5) * w,
        y + 16,
        w < 44 ? String(n).slice(-4) : group(n),
        `${turn ? "on-turn" : "soft"} xs mid${here ? " b" : ""}`,
      );
  }
  return out;
}
function waits(R, S, W, what) {
  const k = S.pokes;
  return (
    rect(W / 2 - 150, 60, 300, 118, "card", 'rx="10"') +
    text(W / 2, 100, "Not in this update", "ink big mid") +
    text(W / 2, 126, `update ${group(R.number)} is not a multiple of ${k.delay}`, "soft s mid") +
    text(W / 2, 148, what, "soft s mid") +
    text(W / 2, 228, "updates: filled = steps 13, 14 and 15 happen", "soft s mid") +
    counter(R, k, W, 240)
  );
}
steps[13] = (R, S, t, W) => {
  const k = S.pokes;
  if (!R.turn) return waits(R, S, W, "the actor and all target networks stay as they are");
  const j = R.shown[k.row],
    narrow = W < narrowAt,
    a = R.policy[j * actionSize],
    b = R.policyAfter[j * actionSize],
    stored = broken(k, "stored");
  const wrong = ["both", "least"].find((name) => broken(k, name));
  const q1 = qCurve(R, "actor", 0, k.row),
    q2 = facts.live ? qCurve(R, "actor", 1, k.row) : null,
    rule = wrong === "both" ? (x, y) => (x + y) / 2 : Math.min;
  const hill = wrong && q2 ? Array.from(q1, (v, g) => rule(v, q2[g])) : q1;
  const others = rivals(R, S, stateOf(R, S)),
    range0 = spanOf([hill], 0.2),
    range1 = spanOf([hill, ...others.map((o) => o.values)], 0.08);
  const range = range1[1] - range1[0] < 3.5 * (range0[1] - range0[0]) ? range1 : range0;
  const gauge = R.rise && !narrow ? 78 : 0,
    w = W - 144 - gauge,
    h = 142,
    A = axes(52, 30, w, h, [facts.low[0], facts.high[0]], range, {
      xlabel: actionLabel(),
      ylabel: `Q1 in the state s of ${rowLabel(S)}`,
    });
  const span = facts.high[0] - facts.low[0];
  const p = phase(t, 0.74, 0.96),
    now = a + (b - a) * p,
    slope = R.slope
      ? R.slope[j * actionSize]
      : (between(q1, clamped(a + 0.02 * span, 0)) - between(q1, clamped(a - 0.02 * span, 0))) /
        (clamped(a + 0.02 * span, 0) - clamped(a - 0.02 * span, 0));
  const id = `cut13-${fix(W)}`,
    touch = between(hill, a),
    reach = 0.22 * span;
  let out =
    impossible(52, 30, w, A, range) +
    A.svg.replace('class="panel"', 'class="panel clear"') +
    `<clipPath id="${id}"><rect x="52" y="30" width="${fix(w)}" height="${h}"/></clipPath><g clip-path="url(#${id})">` +
    others.map((o) => path(trace(o.values, A), `${o.cls} stroke`)).join("") +
    (wrong ? path(trace(q1, A), "c1 stroke faint") + path(trace(q2, A), "c2 stroke faint") : "") +
    sym("q1", path(trace(hill, A), wrong ? "bad stroke w3" : "c1 stroke w2")) +
    (t > 0.3 && !stored
      ? line(
          A.X(a - reach),
          A.Y(touch - slope * reach),
          A.X(a + reach),
          A.Y(touch + slope * reach),
          "gradient-thin stroke dashed",
        )
      : "") +
    "</g>";
  const x = A.X(now),
    y = A.Y(between(hill, now)),
    x0 = A.X(a);
  if (p > 0) out += marks.dot(x0, A.Y(touch), 4, "actor hollow2") + marks.diamond(x0, 30 + h, 4.5, "actor hollow2");
  out +=
    line(x, y, x, 30 + h, "actor stroke thin") +
    sym("a", marks.diamond(x, 30 + h, 6, "actor fill edge") + marks.dot(x, y, 5, "actor fill edge"));
  if (t > 0.3 && !stored) {
    const push = phase(t, 0.3, 0.45) * Math.sign(slope) * Math.min(60, 26 + 20 * Math.log1p(Math.abs(slope)));
    // Where the action is at the edge of its range and the gradient points out of it, the arrow ends at the mark.
    const from = x0 + push < 54 || x0 + push > 50 + w ? x0 - push : x0,
      y_ = 30 + h - 16;
    out +=
      arrow(from, y_, from + push, y_, "gradient") +
      text(
        Math.max(86, Math.min(24 + w, from + push / 2)),
        y_ - 10,
        wrong ? "gradient" : "dQ1/da",
        "gradient-ink xs b mid",
      );
  }
  out += stacked(
    [
      {
        y: A.Y(hill.at(-1)),
        text: wrong === "both" ? "mean" : wrong ? "smaller" : "Q1",
        cls: wrong ? "bad b" : "c1-ink b",
      },
      ...others
        .filter((o) => A.Y(o.values.at(-1)) > 26 && A.Y(o.values.at(-1)) < 36 + h)
        .map((o) => ({ y: A.Y(o.values.at(-1)), text: o.label, cls: `${o.cls}-ink` })),
    ],
    52 + w + 6,
    14,
    36,
    26 + h,
  );
  // The action's movement on a scale of its own.
  if (!stored && t > 0.3) {
    const most = Math.max(Math.abs(b - a), 1e-6) * 1.5,
      ly = 234,
      X = (v) => 52 + w / 2 + ((v - a) / most) * (w / 2 - 60);
    out +=
      rect(52, ly - 20, w, 34, "card", 'rx="6"') +
      text(58, ly - 6, "lens", "soft xs") +
      line(X(a), ly - 4, X(now), ly - 4, "actor stroke w2") +
      marks.diamond(X(a), ly - 4, 5, "actor hollow2") +
      marks.diamond(X(now), ly - 4, 6, "actor fill edge") +
      text(X(a), ly + 11, show(a, 4), "soft xs num mid") +
      (Math.abs(X(now) - X(a)) > 52 ? text(X(now), ly + 11, show(now, 4), "ink xs num mid") : "");
  }
  if (gauge) {
    // The mean of Q1 over the batch, before and after: the quantity that the actor's step raises.
    const gx = W - 66,
      gain = R.rise[1] - R.rise[0],
      up = gain > 0 ? -54 : 54,
      mid = 101;
    out +=
      text(gx - 12, 23, "mean Q1", "soft s") +
      line(gx, mid - 62, gx, mid + 62, "grid") +
      line(gx - 7, mid, gx + 7, mid, "c1 stroke w2") +
      text(gx + 12, mid + 4, "before", "soft xs") +
      (p > 0
        ? arrow(gx, mid, gx, mid + up * p, "c1") +
          text(gx + 12, mid + up + (up < 0 ? 14 : -6), `${gain > 0 ? "+" : ""}${show(gain, 4)}`, "ink xs num")
        : "");
  }
  const said = stored
    ? "the stored action: no gradient"
    : wrong
      ? `ascends the ${wrong === "both" ? "mean" : "smaller"} of both critics: not TD3`
      : t < 0.3
        ? `the actor's own action: π(s) = ${show(a, 4)}`
        : t < 0.74
          ? `gradient dQ1/da at ${show(a, 4)} is ${show(slope, 3)}${narrow || !facts.truth ? "" : `: ${slope > 0 ? "more" : "less"} force raises Q1`}`
          : `π(s) from ${show(a, 4)} to ${show(b, 4)}`;
  return (
    out +
    text(52, 272, said, stored || wrong ? "bad s b" : "ink s num") +
    text(
      52,
      290,
      t >= 0.74 && R.rise
        ? `mean Q1 of the batch: ${show(R.rise[0], 4)} \u2192 ${show(R.rise[1], 4)}`
        : `chain rule: dQ1/da · da/dφ${narrow ? "" : "; critic 1 is read, never changed"}`,
      "soft s num",
    ) +
    counter(R, k, W, 302)
  );
};

// 14 and 15: the lag of a target network, in time, and this update's movement.
const lagging = () => has("lag.online");
function followed(online, start, tau, every) {
  const out = new Float64Array(online.length);
  let at = start;
  online.forEach((v, k) => {
    if (k > 0 && k % every === 0) at += tau * (v - at);
    out[k] = at;
  });
  return out;
}
const halfLife = (tau, every) => (tau <= 0 ? Infinity : tau >= 1 ? 0 : Math.ceil(Math.log(0.5) / Math.log(1 - tau)) * every);
function lagPlot(R, S, t, W, y0, h, name, cls, label) {
  const k = S.pokes,
    online = array(`lag.${name}`),
    every = broken(k, "everyupdate") ? 1 : k.delay,
    target = followed(online, online[0], R.tau, every),
    n = online.length - 1,
    upto = Math.max(2, Math.round(n * mix(0.05, 1, phase(t, 0, 0.6))));
  const A = axes(52, y0, W - 52 - 92, h, [0, n], spanOf([online, target], 0.12), {
    xlabel: "",
    ylabel: label,
    yticks: 3,
  });
  const trail = (values) =>
    points(
      Array.from(values.subarray(0, upto + 1), (v, j) => [j, v])
        .filter(([j]) => j % 4 === 0 || j === upto)
        .map(([j, v]) => [A.X(j), A.Y(v)]),
    );
  let out = A.svg + path(trail(online), `${cls} stroke w1`) + path(trail(target), `${cls} stroke w3 dashed`);
  const half = halfLife(R.tau, every);
  // The half-life: the target has covered half of the distance to a weight that would stand still.
  if (t > 0.62 && half > 8 && half < n * 0.6) {
    const from = n * 0.08,
      yy = y0 + h - 9;
    out +=
      line(A.X(from), yy, A.X(from + half), yy, "ink stroke") +
      line(A.X(from), yy - 4, A.X(from), yy + 4, "ink stroke") +
      line(A.X(from + half), yy - 4, A.X(from + half), yy + 4, "ink stroke") +
      text(A.X(from), yy - 8, `half of a jump: ${Math.round(half)} updates${W < narrowAt ? "" : `; behind a drift: ${Math.round(every * (1 / R.tau - 1))}`}`, "ink xs num");
  }
  out += stacked(
    [
      { y: A.Y(online[upto]), text: "online", cls: `${cls}-ink` },
      { y: A.Y(target[upto]), text: "target", cls: `${cls}-ink b` },
    ],
    W - 86,
    14,
    y0 + 4,
    y0 + h,
  );
  return out;
}
// This update at true scale: each weight of the target moves the share tau toward its own.
function glide(R, S, t, W, groups, top = 44, each = 0) {
  const narrow = W < narrowAt,
    p = R.glides ? phase(t, 0.25, 0.6) : 0,
    x0 = narrow ? 96 : 150,
    x1 = W - (narrow ? 72 : 90),
    count = each || (groups.length > 1 ? 4 : 8),
    lane = 26;
  let out = text(x0, top - 16, "target", "soft s mid") + text(x1, top - 16, "online", "soft s mid"),
    at = 0;
  for (const { from, to, cls } of groups) {
    const order = Array.from(from.keys()).sort((a, b) => Math.abs(to[b] - from[b]) - Math.abs(to[a] - from[a])).slice(0, count);
    order.forEach((w) => {
      const y = top + at * lane;
      out +=
        line(x0, y, x1, y, "soft-stroke stroke thin") +
        marks.square(x1, y, 5, `${cls} fill`) +
        marks.square(x0, y, 5, `${cls} hollow2 dashed`) +
        marks.diamond(mix(x0, x1, R.tau * p), y, 6, `${cls} fill edge`) +
        text(x0 - 12, y + 4, show(mix(from[w], to[w], R.tau * p), 4), "ink xs num end") +
        text(x1 + 12, y + 4, show(to[w], 4), "soft xs num");
      at++;
    });
  }
  return { svg: out, bottom: top + at * lane };
}
function glideSays(R, S) {
  const k = S.pokes;
  if (broken(k, "hardcopy")) return ["copied whole: y jumps with the online networks", true];
  if (broken(k, "everyupdate")) return ["at every update: the lag is halved", true];
  if (R.tau === 0) return ["τ = 0: the targets keep their initial weights", true];
  if (R.tau > 0.05) return [`τ = ${show(R.tau, 3)}: the targets follow almost at once`, false];
  return [`τ = ${show(R.tau, 3)}: in one update almost nothing moves`, false];
}
steps[14] = (R, S, t, W) => {
  if (!R.glides) return waits(R, S, W, "the actor target stays as it is");
  const group_ = [{ from: R.actorTarget, to: R.actorAfter, cls: "actor" }];
  if (!lagging()) {
    const G = glide(R, S, t, W, group_),
      [said, bad] = glideSays(R, S);
    return G.svg + text(W < narrowAt ? 16 : 60, G.bottom + 18, said, bad ? "bad s b" : "ink s");
  }
  const G = glide(R, S, t, W, group_, 218, 3),
    [said, bad] = glideSays(R, S);
  return (
    lagPlot(R, S, t, W, 30, 122, "actor", "actor", `one weight of the actor and its target${W < narrowAt ? "" : ", update by update"}`) +
    G.svg +
    text(W < narrowAt ? 16 : 60, 300, said, bad ? "bad s b" : "ink s") +
    text(W < narrowAt ? 16 : 60, 318, "the three weights farthest from the actor's", "soft s")
  );
};
steps[15] = (R, S, t, W) => {
  if (!R.glides) return waits(R, S, W, "the critic targets stay as they are");
  const groups = [
    { from: R.targetsMoved[0], to: R.criticsAfter[0], cls: "c1" },
    { from: R.targetsMoved[1], to: R.criticsAfter[1], cls: "c2" },
  ];
  if (!lagging()) {
    const G = glide(R, S, t, W, groups),
      [said, bad] = glideSays(R, S);
    return G.svg + text(W < narrowAt ? 16 : 60, G.bottom + 18, said, bad ? "bad s b" : "ink s");
  }
  const slow = array("lag.y"),
    fast = array("lag.y_online"),
    n = slow.length - 1,
    upto = Math.max(2, Math.round(n * mix(0.05, 1, phase(t, 0, 0.6))));
  const h = 104,
    y0 = 184,
    A = axes(52, y0, W - 52 - 92, h, [0, n], spanOf([slow, fast], 0.1), {
      xlabel: "",
      ylabel: `y of row ${facts.row + 1}: with targets${W < narrowAt ? "" : " (thick), from the online networks (thin)"}`,
      yticks: 3,
    });
  const trail = (values) =>
    points(
      Array.from(values.subarray(0, upto + 1), (v, j) => [j, v])
        .filter(([j]) => j % 4 === 0 || j === upto)
        .map(([j, v]) => [A.X(j), A.Y(v)]),
    );
  const [said, bad] = glideSays(R, S),
    j = R.shown[S.pokes.row],
    next = R.yAfter ? R.yAfter[j] : null;
  return (
    lagPlot(R, S, t, W, 26, 112, "online", "c1", `one weight of critic 1 and its target${W < narrowAt ? "" : ", update by update"}`) +
    A.svg +
    path(trail(fast), "bad stroke w1") +
    path(trail(slow), "ystroke stroke w3") +
    stacked(
      [{ y: A.Y(fast[upto]), text: "online", cls: "bad" }, { y: A.Y(slow[upto]), text: "y", cls: "ink b" }],
      W - 86,
      14,
      y0 + 4,
      y0 + h,
    ) +
    text(
      W < narrowAt ? 16 : 52,
      y0 + h + 34,
      bad || t < 0.7 || next === null
        ? said
        : `y of ${rowLabel(S)}${W < narrowAt ? "" : " by the moved targets"}: ${show(R.y[j], 4)} \u2192 ${show(next, 4)}${W < narrowAt ? "" : ": the loop closes"}`,
      bad ? "bad s b" : "ink s num",
    )
  );
};

// The whole stage for the docs: heading, map, the chosen row, the step's own drawing.
const titles = JSON.parse(document.getElementById("lessons").textContent);
const titleOf = (step) => (step ? titles.steps[step - 1].title : titles.acting.title);
const DRAWING = 342;
const showsRow = (step) => step >= 4 && step <= 13;
function parts(S, W) {
  const u = S.step <= 3 && S.step >= 2 ? 0 : S.u,
    R = run(u, S.pokes),
    thumb = showsRow(S.step) ? thumbHeight() : 0,
    name = `Step ${S.step}: ${titleOf(S.step)}`,
    row = showsRow(S.step) ? ` Update ${group(R.number)}, row ${S.pokes.row + 1}: y = ${show(R.y[R.shown[S.pokes.row]], 3)}, Q1 = ${show(R.q[0][R.shown[S.pokes.row]], 3)}, loss = ${show(R.loss, 3)}.` : "";
  return {
    map: { width: W, height: MAP_HEIGHT, name: `Map of TD3, ${name}`, description: "", inside: drawMap(R, S, S.t, W) },
    drawing: {
      width: W,
      height: thumb + DRAWING,
      name,
      description: (S.step ? titles.steps[S.step - 1].drawing : "The actor's action plus exploration noise enters the environment, and the row goes into the buffer.") + row,
      inside:
        (thumb ? thumbnail(R, S, W) : "") +
        `<g transform="translate(0 ${thumb})">${steps[S.step](R, S, S.t, W)}</g>`,
    },
  };
}
function stage(S, W, { heading = false } = {}) {
  const { map, drawing } = parts(S, W),
    head = heading ? 34 : 0;
  let inside = "";
  if (heading)
    inside +=
      text(4, 21, `${S.step}  ${titleOf(S.step)}`, "ink head") +
      (W >= narrowAt && S.step > 3 ? text(W - 4, 21, `update ${group(facts.updates[S.u])}`, "soft s end") : "");
  inside +=
    `<g transform="translate(0 ${head})">${map.inside}</g>` +
    `<g transform="translate(0 ${head + map.height + 12})">${drawing.inside}</g>`;
  return { ...drawing, height: head + map.height + 12 + drawing.height, inside };
}
function svgOf(scene, attributes = "", style = "", id = "pic") {
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${scene.width} ${scene.height}" role="img" aria-labelledby="${id}-t${scene.description ? ` ${id}-d` : ""}" ${attributes}>` +
    `<title id="${id}-t">${esc(scene.name)}</title>${scene.description ? `<desc id="${id}-d">${esc(scene.description)}</desc>` : ""}${style}${scene.inside}</svg>`
  );
}
