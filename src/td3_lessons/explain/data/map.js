"use strict";
// The map: one data-flow graph of TD3 that stays in place through all steps. Networks are nodes that show what they say:
// an actor its action in every state, a critic its Q-value of the actor's own action there (targets dashed). What a step
// reads and makes travels along the edges, and the gradient comes back along them, up to the wall before y.

const NETWORKS = {
  actor: ["actor", "actor", "online"],
  critic1: ["critic 1", "c1", "online"],
  critic2: ["critic 2", "c2", "online"],
  actorTarget: ["actor target", "actor", "target"],
  critic1Target: ["critic 1 target", "c1", "target"],
  critic2Target: ["critic 2 target", "c2", "target"],
};
const NET_SYMBOLS = {
  actor: "actor",
  critic1: "critics",
  critic2: "critics",
  actorTarget: "actor_target",
  critic1Target: "critics_target",
  critic2Target: "critics_target",
};
const SHORT = {
  actor: "actor",
  critic1: "Q1",
  critic2: "Q2",
  actorTarget: "actor′",
  critic1Target: "Q1′",
  critic2Target: "Q2′",
};

// What a network says over the plane of states, as [side × side] numbers; known only where the page computes networks.
const NODE_SIDE = 13;
const saidCache = new WeakMap();
function saidOver(net, p, actor, side = NODE_SIDE) {
  const cached = saidCache.get(p);
  if (cached?.side === side && cached.actor === actor) return cached.values;
  const states = new Float64Array(side * side * stateSize),
    mean = new Float64Array(stateSize);
  for (let r = 0; r < 200; r++) for (let j = 0; j < stateSize; j++) mean[j] += memory[r * rowSize + j] / 200;
  for (let j = 0; j < side * side; j++) {
    states.set(mean, j * stateSize);
    states[j * stateSize] = mix(facts.plane_low[0], facts.plane_high[0], (j % side) / (side - 1));
    if (stateSize > 1) states[j * stateSize + 1] = mix(facts.plane_low[1], facts.plane_high[1], Math.floor(j / side) / (side - 1));
  }
  const actions = act(actor, states, side * side),
    values = net === "actor" ? actions.filter((_, j) => j % actionSize === 0) : score(p, states, actions, side * side);
  saidCache.set(p, { side, actor, values });
  return values;
}
function nodePicture(net, p, actor, x, y, w, h, side = NODE_SIDE, until = Infinity) {
  const values = saidOver(net, p, actor, side),
    [low, high] = net === "actor" ? [facts.low[0], facts.high[0]] : [Math.min(...values), Math.max(...values)],
    cells = {};
  values.forEach((v, j) => {
    const px = x + ((j % side) / side) * w;
    if (px > until) return;
    const level = net === "actor" ? Math.round(((2 * (v - low)) / (high - low || 1) - 1) * LEVELS) : Math.round(((v - low) / (high - low || 1)) * LEVELS);
    if (level) (cells[level] ||= []).push(`M${fix(px)} ${fix(y + h - ((Math.floor(j / side) + 1) / side) * h)}h${fix(w / side + 0.2)}v${fix(h / side + 0.2)}h-${fix(w / side + 0.2)}z`);
  });
  return Object.keys(cells)
    .sort((a, b) => a - b)
    .map((level) => path(cells[level].join(""), net === "actor" ? (level < 0 ? "neg" : "pos") : "qmap", `fill-opacity="${fix((0.9 * Math.abs(level)) / LEVELS)}"`))
    .join("");
}
const LEVELS = 6;
const blend = (a, b, p) => (p <= 0 ? a : p >= 1 ? b : Float64Array.from(a, (v, j) => v + (b[j] - v) * p));

const narrowAt = 480;
const MAP_HEIGHT = 296;
const PLACES = {
  wide: {
    buffer: { x: 2, y: 98, w: 98, h: 66 }, env: { x: 2, y: 222, w: 98, h: 66 },
    actorTarget: { x: 112, y: 8, w: 98, h: 70 }, actor: { x: 112, y: 220, w: 98, h: 70 },
    noise: { x: 262, y: 42, r: 15 }, critic1Target: { x: 318, y: 2, w: 106, h: 70 },
    critic2Target: { x: 318, y: 76, w: 106, h: 70 }, critic1: { x: 318, y: 152, w: 106, h: 70 },
    critic2: { x: 318, y: 226, w: 106, h: 68 }, min: { x: 482, y: 74, r: 16 }, y: { x: 570, y: 74, r: 11 },
    loss: { x: 570, y: 224, r: 18 }, lanes: [128, 149, 186], turn: 232, into: 304, out: [434, 442],
  },
  narrow: {
    buffer: { x: 1, y: 98, w: 56, h: 62 }, env: { x: 1, y: 224, w: 56, h: 62 },
    actorTarget: { x: 72, y: 8, w: 66, h: 66 }, actor: { x: 72, y: 222, w: 66, h: 66 },
    noise: { x: 164, y: 40, r: 11 }, critic1Target: { x: 190, y: 2, w: 68, h: 70 },
    critic2Target: { x: 190, y: 76, w: 68, h: 70 }, critic1: { x: 190, y: 152, w: 68, h: 70 },
    critic2: { x: 190, y: 226, w: 68, h: 68 }, min: { x: 288, y: 74, r: 13 }, y: { x: 334, y: 74, r: 10 },
    loss: { x: 334, y: 224, r: 16 }, lanes: [126, 149, 184], turn: 152, into: 181, out: [264, 269],
  },
};
const right = (b) => b.x + b.w,
  middle = (b) => b.y + b.h / 2;

// Every edge as a line of points from where it starts to where it ends.
function edges(P) {
  const [lane1, lane2, lane3] = P.lanes,
    { buffer, env, actor, actorTarget, noise, min, y, loss } = P,
    c1 = P.critic1,
    c2 = P.critic2,
    t1 = P.critic1Target,
    t2 = P.critic2Target,
    start = right(buffer);
  return {
    s2: [[start - 14, buffer.y], [start - 14, middle(actorTarget) + 6], [actorTarget.x, middle(actorTarget) + 6]],
    s2c: [[start, lane1], [P.into, lane1], [P.into, middle(t2) + 8], [t2.x, middle(t2) + 8]],
    s2c1: [[P.into, lane1], [P.into, middle(t1) + 16], [t1.x, middle(t1) + 16]],
    a2: [[right(actorTarget), noise.y], [noise.x - noise.r, noise.y]],
    smooth1: [[noise.x + noise.r, noise.y], [t1.x, noise.y - 8]],
    smooth2: [[noise.x + noise.r, noise.y], [t2.x, middle(t2) - 8]],
    q1t: [[right(t1), middle(t1)], [min.x - min.r * 0.8, min.y - min.r * 0.6]],
    q2t: [[right(t2), middle(t2)], [min.x - min.r * 0.8, min.y + min.r * 0.6]],
    min: [[min.x + min.r, min.y], [y.x - y.r - 2, min.y]],
    r: [[start, lane2], [y.x, lane2], [y.x, y.y + y.r + 2]],
    sa: [[start, Math.min(lane3, buffer.y + buffer.h - 8)], [start + 12, lane3], [P.into, lane3], [c1.x, middle(c1)]],
    sa2: [[P.into, lane3], [P.into, middle(c2)], [c2.x, middle(c2)]],
    s: [[start - 14, buffer.y + buffer.h], [start - 14, actor.y + 16], [actor.x, actor.y + 16]],
    q1: [[right(c1), middle(c1)], [loss.x - loss.r, loss.y - 6]],
    q2: [[right(c2), middle(c2)], [loss.x - loss.r, loss.y + 6]],
    y: [[y.x + 6, y.y + y.r + 2], [y.x + 6, loss.y - loss.r]],
    pi: [[right(actor), middle(actor)], [P.turn, middle(actor)], [P.turn, middle(c1) + 18], [c1.x, middle(c1) + 18]],
    act: [[actor.x, middle(actor) + 12], [right(env), middle(actor) + 12]],
    store: [[env.x + 22, env.y], [env.x + 22, buffer.y + buffer.h]],
    polyakActor: [[actor.x + actor.w / 2, actor.y], [actor.x + actor.w / 2, actorTarget.y + actorTarget.h]],
    polyak1: [[right(c1), c1.y + 12], [P.out[0], c1.y + 12], [P.out[0], t1.y + t1.h - 12], [right(t1), t1.y + t1.h - 12]],
    polyak2: [[right(c2), c2.y + 12], [P.out[1], c2.y + 12], [P.out[1], t2.y + t2.h - 12], [right(t2), t2.y + t2.h - 12]],
  };
}
const along = (xs, p) => {
  const parts = xs.slice(1).map(([x, y], j) => Math.hypot(x - xs[j][0], y - xs[j][1]));
  let left = clip01(p) * parts.reduce((a, b) => a + b, 0);
  for (let j = 0; j < parts.length; j++) {
    if (left <= parts[j] || j === parts.length - 1) {
      const q = parts[j] ? Math.min(1, left / parts[j]) : 1;
      return [mix(xs[j][0], xs[j + 1][0], q), mix(xs[j][1], xs[j + 1][1], q)];
    }
    left -= parts[j];
  }
  return xs[0];
};

// Which edges carry something in a step, and when: [edge, from t, to t, kind].
const FLOWS = {
  0: [["act", 0.1, 0.5], ["store", 0.6, 0.95]],
  1: [["act", 0, 0.4], ["store", 0.4, 0.8]],
  2: [["polyakActor", 0.05, 0.85, "copy"]],
  3: [["polyak1", 0.05, 0.85, "copy"], ["polyak2", 0.05, 0.85, "copy"]],
  4: [["s2", 0.1, 0.6], ["s2c", 0.1, 0.8], ["s2c1", 0.4, 0.8], ["r", 0.1, 0.9], ["sa", 0.1, 0.8], ["sa2", 0.4, 0.9], ["s", 0.1, 0.6]],
  5: [["s2", 0, 0.45], ["a2", 0.55, 0.9]],
  6: [["a2", 0, 0.2], ["smooth1", 0.9, 1], ["smooth2", 0.9, 1]],
  7: [["s2c", 0, 0.4], ["s2c1", 0.1, 0.4], ["smooth1", 0, 0.4], ["smooth2", 0, 0.4], ["q1t", 0.55, 0.9], ["q2t", 0.55, 0.9]],
  8: [["q1t", 0, 0.35], ["q2t", 0, 0.35], ["min", 0.6, 0.9]],
  9: [["min", 0.2, 0.55], ["r", 0, 0.45]],
  10: [["sa", 0, 0.4], ["sa2", 0.1, 0.4], ["q1", 0.45, 0.85], ["q2", 0.45, 0.85]],
  11: [["q1", 0, 0.35], ["q2", 0, 0.35], ["y", 0, 0.35]],
  12: [["q1", 0, 0.28, "back"], ["q2", 0, 0.28, "back"]],
  13: [["s", 0, 0.12], ["pi", 0.12, 0.3], ["pi", 0.42, 0.6, "back"]],
  14: [["polyakActor", 0.1, 0.6, "copy"]],
  15: [["polyak1", 0.1, 0.6, "copy"], ["polyak2", 0.1, 0.6, "copy"]],
};
const AWAKE = {
  0: ["actor", "env", "buffer"],
  1: ["actor", "env", "buffer"],
  2: ["actor", "actorTarget"],
  3: ["critic1", "critic2", "critic1Target", "critic2Target"],
  4: ["buffer"],
  5: ["buffer", "actorTarget"],
  6: ["actorTarget", "noise"],
  7: ["noise", "critic1Target", "critic2Target"],
  8: ["critic1Target", "critic2Target", "min"],
  9: ["min", "y", "buffer"],
  10: ["buffer", "critic1", "critic2"],
  11: ["critic1", "critic2", "y", "loss"],
  12: ["critic1", "critic2", "loss"],
  13: ["actor", "critic1"],
  14: ["actor", "actorTarget"],
  15: ["critic1", "critic2", "critic1Target", "critic2Target"],
};

// What each network holds at a moment, how far a gradient has swept over it, and what is said of it.
function networkStates(R, S, t) {
  const k = S.pokes,
    step = S.step,
    glide = R.glides ? phase(t, 0.1, 0.6) : 0,
    asBorn = facts.loaded ? "as trained" : "";
  const nets = {
    actor: { p: R.actor, kind: "actor" },
    critic1: { p: R.critics[0], kind: "critic" },
    critic2: { p: R.critics[1], kind: "critic" },
    actorTarget: { p: R.actorTarget, kind: "actor" },
    critic1Target: { p: R.targets[0], kind: "critic" },
    critic2Target: { p: R.targets[1], kind: "critic" },
  };
  const say = (names, ...said) =>
    names.forEach((name, j) => {
      nets[name].flow = said[j % said.length];
    });
  const copied = facts.loaded ? "follows slowly" : "an exact copy";
  if (step === 2) {
    say(["actor", "actorTarget"], asBorn || "random weights", copied);
    nets.actorTarget.copied = phase(t, 0.05, 0.85);
  }
  if (step === 3) {
    say(["critic1", "critic2", "critic1Target", "critic2Target"], "own weights", "own weights", copied, copied);
    if (broken(k, "twins")) {
      nets.critic2.p = R.critics[0];
      nets.critic2Target.p = R.targets[0];
      nets.critic2.flow = "copy of critic 1";
    }
    nets.critic1Target.copied = nets.critic2Target.copied = phase(t, 0.05, 0.85);
  }
  if (step === 12) {
    const moved = phase(t, 0.6, 0.95);
    ["critic1", "critic2"].forEach((name, twin) => {
      if (name === "critic2" && broken(k, "onecritic")) {
        nets[name].flow = "not trained";
        return;
      }
      nets[name].flow = t < 0.6 ? "\u2190 gradient" : "weights move";
      nets[name].sweep = clip01((t - 0.26) / 0.3);
      nets[name].p = blend(R.critics[twin], R.criticsAfter[twin], moved);
    });
    if (broken(k, "leak"))
      ["critic1Target", "critic2Target"].forEach((name) => {
        nets[name].awake = true;
        nets[name].flow = "must not move";
        nets[name].sweep = clip01((t - 0.26) / 0.3);
      });
  }
  if (step > 12)
    ["critic1", "critic2"].forEach((name, twin) => {
      nets[name].p = R.criticsAfter[twin];
    });
  if (step === 13 && R.turn) {
    nets.critic1.frozen = true;
    nets.critic1.flow = "frozen";
    if (broken(k, "both") || broken(k, "least")) {
      nets.critic2.awake = true;
      nets.critic2.flow = "must not be used";
    }
    nets.actor.flow = broken(k, "stored")
      ? "no gradient"
      : t < 0.42
        ? "s \u2192 \u03c0(s)"
        : t < 0.72
          ? "\u2190 gradient"
          : "weights move";
    if (t > 0.58 && !broken(k, "stored")) nets.actor.sweep = clip01((t - 0.58) / 0.14);
    nets.actor.p = blend(R.actor, R.actorAfter, phase(t, 0.72, 0.95));
  }
  if (step === 13 && !R.turn) nets.actor.flow = "waits";
  if (step > 13) nets.actor.p = R.actorAfter;
  const share = R.glides ? `moves ${show(R.tau * 100, 1)} %` : "waits";
  if (step === 14) {
    say(["actor", "actorTarget"], "stays", share);
    nets.actorTarget.p = blend(R.actorTarget, R.actorTargetAfter, glide);
  }
  if (step > 14) nets.actorTarget.p = R.actorTargetAfter;
  if (step === 15) {
    say(["critic1", "critic2", "critic1Target", "critic2Target"], "stays", "stays", share, share);
    ["critic1Target", "critic2Target"].forEach((name, twin) => {
      nets[name].p = blend(R.targetsMoved[twin], R.targetsAfter[twin], glide);
    });
  }
  return nets;
}

// A cart on its rail, as small as is needed.
function cart(x, y, w, position, velocity, force, cls = "ink") {
  const at = x + w / 2 + (position / 2) * (w / 2 - 6),
    size = Math.max(5, Math.min(11, w * 0.07));
  return (
    line(x + 4, y, x + w - 4, y, "ink stroke thin") +
    line(x + 4, y - 6, x + 4, y + 3, "bad stroke w2") +
    line(x + w - 4, y - 6, x + w - 4, y + 3, "bad stroke w2") +
    line(x + w / 2, y, x + w / 2, y + 4, "ink stroke thin") +
    rect(at - size, y - size * 1.3 - 1, 2 * size, size * 1.3, `${cls} fill`, 'rx="1.5"') +
    (velocity === null
      ? ""
      : arrow(
          at,
          y - size * 1.3 - 5,
          Math.max(x, Math.min(x + w, at + velocity * w * 0.09)),
          y - size * 1.3 - 5,
          "soft-stroke",
        )) +
    (force === null || Math.abs(force) < 0.02
      ? ""
      : arrow(
          at - Math.sign(force) * (size + 7 + Math.abs(force) * w * 0.13),
          y - size * 0.65 - 1,
          at - Math.sign(force) * (size + 1),
          y - size * 0.65 - 1,
          "actor",
        ))
  );
}

// The chosen row in every step: cart before, force, cart after; in a run of one's own, its frames.
function thumbnail(R, S, W) {
  const k = S.pokes,
    j = R.shown[k.row],
    B = R.batch,
    narrow = W < narrowAt,
    end = B.terminated[j] ? "ended" : B.timed_out[j] ? "time-out" : "";
  if (!facts.truth) {
    const frames = (facts.frames || {})[R.u]?.[k.row];
    if (!frames) return "";
    const w = narrow ? 92 : 120,
      h = (w * frames.height) / frames.width;
    return (
      text(4, 16, `row ${k.row + 1}`, "ink s b") +
      text(4, 32, "before", "soft s") +
      `<image href="${frames.before}" x="60" y="2" width="${w}" height="${fix(h)}"/>` +
      text(70 + w, 16, `r ${show(B.reward[j], 2)}`, "ink s num") +
      text(70 + w, 32, end ? `after, ${end}` : "after", "soft s") +
      `<image href="${frames.after}" x="${140 + w}" y="2" width="${w}" height="${fix(h)}"/>`
    );
  }
  const w = narrow ? 92 : 150,
    x1 = narrow ? 44 : 52,
    x2 = W - w - (narrow ? 4 : 70),
    a = B.action[j];
  return (
    text(2, 18, `row ${k.row + 1}`, "ink s b") +
    text(2, 34, "s", "soft s", 'data-sym="s"') +
    sym("s", cart(x1, 30, w, B.state[2 * j], B.state[2 * j + 1], a)) +
    text((x1 + w + x2) / 2, 16, `force a = ${show(a, 2)}`, "actor-ink s mid", 'data-sym="a"') +
    arrow(x1 + w + 10, 26, x2 - 10, 26, "ink") +
    text((x1 + w + x2) / 2, 40, `reward r = ${show(B.reward[j], 2)}`, "ink s mid", 'data-sym="r"') +
    sym("s2", cart(x2, 30, w, B.next_state[2 * j], B.next_state[2 * j + 1], null)) +
    (narrow ? "" : text(W - 62, 18, "s′", "soft s", 'data-sym="s2"')) +
    (end && !narrow ? text(W - 62, 36, end, "bad s b") : "")
  );
}
const thumbHeight = () => (facts.truth ? 46 : facts.frames ? (facts.frames.height ?? 0) + 6 : 0);

// Of networks that the page cannot compute: critics as their curve over the actions in the drawn row's state.
function nodeCurve(R, S, name, box, tall) {
  if (!name.startsWith("critic")) return "";
  const q = qCurve(R, name.endsWith("Target") ? "target" : S.step > 12 ? "after" : "before", name.includes("2") ? 1 : 0, S.pokes.row),
    [low, high] = spanOf([q], 0.1);
  return path(
    points(Array.from(q, (v, j) => [box.x + 6 + (j / (q.length - 1)) * (box.w - 12), box.y + 16 + tall - ((v - low) / (high - low)) * tall])),
    "c1 stroke w2",
  );
}

function drawMap(R, S, t, W) {
  const narrow = W < narrowAt,
    P = PLACES[narrow ? "narrow" : "wide"],
    E = edges(P),
    nets = networkStates(R, S, t),
    k = S.pokes,
    j = R.shown[k.row],
    whole = S.step === "whole",
    flows = whole ? Object.keys(E).map((name) => [name, 0, 0]) : (S.step >= 13 && !(S.step === 13 ? R.turn : R.glides) ? [] : FLOWS[S.step]).filter(
      ([name]) => !(name === "pi" && broken(k, "stored")),
    ),
    now = flows.map(([name]) => name);
  const awake = new Set(whole ? Object.keys(P) : AWAKE[S.step]);
  if (S.step === 5 && broken(k, "online")) {
    awake.delete("actorTarget");
    awake.add("actor");
  }
  const dim = (on) => (on ? 1 : 0.3);
  let out = "";
  // Edges first, so that nodes lie on them.
  Object.entries(E).forEach(([name, xs]) => {
    const on = now.includes(name),
      quiet = name.startsWith("polyak"),
      [x1, y1] = xs.at(-2),
      [x2, y2] = xs.at(-1),
      a = Math.atan2(y2 - y1, x2 - x1);
    out += `<g opacity="${on ? 1 : 0.32}">${path(points(xs), `edge${quiet ? " lagging" : ""}${on ? " on" : ""}`)}${path(
      `M${fix(x2)} ${fix(y2)}L${fix(x2 - 6 * Math.cos(a - 0.45))} ${fix(y2 - 6 * Math.sin(a - 0.45))}L${fix(x2 - 6 * Math.cos(a + 0.45))} ${fix(y2 - 6 * Math.sin(a + 0.45))}Z`,
      "edge-tip",
    )}</g>`;
  });
  // The wall: no gradient passes from the loss into y.
  const wallOn = S.step === 12 || whole,
    wy = (P.y.y + P.loss.y) / 2 + 8;
  out += `<g opacity="${dim(wallOn || S.step === 11 || S.step === 9)}">${rect(P.y.x - 8, wy - 3, 28, 6, "wall", 'rx="1"')}</g>`;
  if (wallOn && !broken(k, "leak"))
    out += narrow
      ? text(W - 2, wy + 20, "no gradient", "gradient-ink xs end")
      : text(P.y.x - 14, wy + 4, "no gradient to y", "gradient-ink xs end");
  flows.forEach(([name, from, to, kind]) => {
    const p = clip01((t - from) / (to - from));
    if (p <= 0 || p >= 1) return;
    const [x, y] = along(E[name], kind === "back" ? 1 - p : p);
    out += kind === "back" ? marks.dot(x, y, 5, "gradient fill edge") : marks.dot(x, y, 4.5, "token");
  });
  if (wallOn && t > 0.02 && t < 0.3) {
    const up = mix(P.loss.y - P.loss.r, wy + 9, clip01(t / 0.2));
    out += marks.dot(P.y.x + 6, up, 5, "gradient fill edge");
  }
  // Networks.
  Object.entries(NETWORKS).forEach(([name, [label, color, kind]]) => {
    const net = nets[name],
      box = P[name],
      on = awake.has(name) || net.awake,
      reach = net.copied === undefined ? Infinity : box.x + box.w * net.copied,
      tall = box.h - 30,
      own = name.endsWith("Target") ? nets.actorTarget.p : nets.actor.p;
    let inside = facts.live
      ? nodePicture(net.kind, net.p, net.kind === "actor" ? net.p : own, box.x + 4, box.y + 16, box.w - 8, tall, NODE_SIDE, reach)
      : nodeCurve(R, S, name, box, tall);
    if (net.sweep > 0) {
      const edge = box.x + 4 + (box.w - 8) * (1 - net.sweep);
      inside += rect(edge, box.y + 16, box.x + box.w - 4 - edge, tall, "swept") + (net.sweep < 1 ? line(edge, box.y + 15, edge, box.y + box.h - 14, "gradient stroke w2") : "");
    }
    if (net.frozen) inside += rect(box.x + 3, box.y + 15, box.w - 6, box.h - 29, "frozen");
    out +=
      `<g class="net" data-net="${name}" data-sym="${NET_SYMBOLS[name]}">${rect(box.x, box.y, box.w, box.h, "behind", 'rx="5"')}<g opacity="${dim(on)}">` +
      rect(box.x, box.y, box.w, box.h, `frame ${color} ${kind}`, 'rx="5"') +
      inside +
      "</g>" +
      text(box.x + 5, box.y + 12, narrow ? SHORT[name] : label, on ? `${color}-ink xs b` : "soft xs") +
      (net.flow && !narrow ? text(box.x + box.w / 2, box.y + box.h - 4, net.flow, "ink xs mid") : "") +
      "</g>";
  });
  // The other nodes.
  const box = (name, label, inside) => {
    const b = P[name],
      on = awake.has(name);
    return `<g data-sym="${name === "buffer" ? "memory" : name}">${rect(b.x, b.y, b.w, b.h, "behind", 'rx="5"')}<g opacity="${dim(on)}">${rect(b.x, b.y, b.w, b.h, "frame plain", 'rx="5"')}${inside}</g>${text(b.x + 5, b.y + 12, label, on ? "ink xs b" : "soft xs")}</g>`;
  };
  const b = P.buffer;
  let slots = "";
  for (let c = 0; c < (narrow ? 4 : 6); c++)
    slots += rect(b.x + 6, b.y + 18 + c * 6, b.w - 12, 4, c === 2 ? "pick" : "slot-faint");
  out += box("buffer", narrow ? "buffer" : "replay buffer", slots);
  out += box(
    "env",
    facts.truth ? (narrow ? "rail" : "environment") : narrow ? "env" : "environment",
    facts.truth
      ? cart(P.env.x + 2, P.env.y + 46, P.env.w - 4, R.batch.state[2 * j], null, R.batch.action[j])
      : text(P.env.x + 5, P.env.y + 34, facts.env.replace(/-v\d+$/, "").slice(0, narrow ? 8 : 13), "soft xs"),
  );
  const round = (name, label, cls, extra = "") => {
    const c = P[name],
      on = awake.has(name);
    return `<g opacity="${on ? 1 : 0.45}" data-sym="${{ noise: "sigma", min: "min", loss: "loss" }[name]}">${marks.dot(c.x, c.y, c.r, `knot${on ? " on" : ""}`)}${text(c.x, c.y + 4, label, `${cls} mid`)}${extra}</g>`;
  };
  out += round("noise", narrow ? "+ε" : "+ ε", "ink xs b") + round("min", "min", "ink xs b") + round("loss", "loss", "ink xs b");
  out += `<g opacity="${dim(awake.has("y") || S.step === 10)}" data-sym="y">${marks.star(P.y.x, P.y.y, P.y.r, "ystar")}${text(P.y.x, P.y.y - P.y.r - 4, "y", "ink s b mid")}</g>`;
  // Numbers of the chosen row, where they have been computed by this step or before it.
  const A = actionSize,
    s = (v) => show(v, Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 2),
    after = (step, part) => S.step > step || (S.step === step && t >= part);
  const put = (x, y, value, cls = "ink", anchor = "") => text(x, y, value, `${cls} xs num ${anchor}`);
  const quiet = (on) => (on ? "ink" : "soft");
  const updateStep = S.step >= 4;
  if (!narrow) {
    const gap1 = (right(P.actorTarget) + P.noise.x - P.noise.r) / 2;
    out += text(gap1, P.noise.y + 15, "a′", "soft xs mid", 'data-sym="a2"');
    const known = updateStep && S.step < 13 && after(6, 0.9);
    out += text(
      P.critic1Target.x - 4,
      16,
      known ? `ã ${s(R.smoothed[j * A])}` : "ã",
      `${known && S.step <= 7 ? "ink" : "soft"} xs num end`,
      'data-sym="smooth"',
    );
    out += text(104, P.lanes[0] - 5, "s′", "soft xs", 'data-sym="s2"');
    out += text(104, P.lanes[1] - 4, "r, d", "soft xs", 'data-sym="r"');
    out += text(122, P.lanes[2] - 5, "s, a", "soft xs", 'data-sym="s"');
    out += text(P.actor.x + P.actor.w / 2 + 6, 208, "τ", "soft xs", 'data-sym="tau"');
    out += text(P.turn + 5, 214, "π(s)", "soft xs", 'data-sym="a"');
    // The outer loop: the actor acts with exploration noise, and the environment's answer is stored.
    out += text(P.env.x + 27, 198, "store", "soft xs");
    out += text(P.env.x + 5, P.env.y + 61, "a + noise", "soft xs");
    if (updateStep && S.step < 13) {
      if (after(5, 0.9)) out += put(gap1, P.noise.y - 6, s(R.next_action[j * A]), quiet(S.step <= 6), "mid");
      if (after(7, 0.9)) {
        out += put(P.out[1] + 6, 30, `Q1′ ${s(R.target_q_values[0][j])}`, quiet(S.step <= 8));
        out += put(P.out[1] + 6, 124, `Q2′ ${s(R.target_q_values[1][j])}`, quiet(S.step <= 8));
      }
      if (after(8, 0.9)) out += put((P.min.x + P.min.r + P.y.x - P.y.r) / 2, P.min.y - 6, s(R.next_q[j]), quiet(S.step <= 9), "mid");
      if (after(9, 0.56)) out += put(P.y.x + 16, P.y.y + 5, s(R.y[j]), quiet(S.step <= 11));
      if (after(10, 0.85)) {
        out += put(P.out[1] + 6, middle(P.critic1) - 4, `Q1 ${s(S.step === 12 && t > 0.9 && facts.live ? qAfter(R, j, 0) : R.q[0][j])}`);
        out += put(P.out[1] + 6, middle(P.critic2) + 20, `Q2 ${s(S.step === 12 && t > 0.9 && facts.live ? qAfter(R, j, 1) : R.q[1][j])}`);
      }
      if (after(11, 0.85)) out += put(P.loss.x + P.loss.r + 4, P.loss.y + 4, s(R.loss), quiet(S.step <= 12));
    }
  }
  return out;
}
