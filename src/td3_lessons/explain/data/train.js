"use strict";
// A whole training run of TD3 on Rail in the page: the environment, the replay buffer and the update, with any of its
// parts changed. One function that needs nothing around it, so that a web worker can run it. Given the same transitions,
// rows and noise, its networks equal PyTorch's (tests/lessons/explain/test_breaks.py).

function makeTrainer(setup, breaks, seed) {
  const { sizes, settings: S, starts } = setup,
    b = Object.fromEntries((breaks.includes("ddpg") ? ["first", "nosmooth", "nodelay"] : breaks).map((name) => [name, true])),
    B = S.batch_size,
    capacity = S.buffer_size;
  // Four independent streams, so that a changed run sees the same starts, noise and rows as the unchanged one.
  const stream = (salt) => {
    let a = (Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(salt, 0x85ebca6b)) | 0;
    const uniform = () => {
      a = (a + 0x6d2b79f5) | 0;
      let t = Math.imul(a ^ (a >>> 15), 1 | a);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
    return { uniform, normal };
  };
  const reset_ = stream(1),
    explore = stream(2),
    sample = stream(3),
    smooth = stream(4),
    birth = stream(5);

  // A network: flat parameters (weights [inputs, outputs], then biases, layer by layer), with room for its activations.
  const count = (w) => w.slice(1).reduce((sum, o, d) => sum + (w[d] + 1) * o, 0);
  const born = (w, given) => {
    if (given) return Float64Array.from(given);
    const p = new Float64Array(count(w));
    let at = 0;
    for (let d = 0; d + 1 < w.length; d++) {
      const bound = 1 / Math.sqrt(w[d]);
      for (let j = 0; j < (w[d] + 1) * w[d + 1]; j++) p[at++] = (2 * birth.uniform() - 1) * bound;
    }
    return p;
  };
  const room = (w, n) => w.map((o) => new Float64Array(n * o));
  function forward(p, w, acts, n) {
    let start = 0;
    for (let d = 0; d + 1 < w.length; d++) {
      const i = w[d],
        o = w[d + 1],
        below = acts[d],
        out = acts[d + 1],
        last = d + 2 === w.length,
        bias = start + i * o;
      for (let r = 0; r < n; r++) {
        const from = r * i,
          to = r * o;
        for (let k = 0; k < o; k++) out[to + k] = p[bias + k];
        for (let j = 0; j < i; j++) {
          const x = below[from + j];
          if (x === 0) continue;
          const at = start + j * o;
          for (let k = 0; k < o; k++) out[to + k] += x * p[at + k];
        }
        if (!last) for (let k = 0; k < o; k++) if (!(out[to + k] > 0)) out[to + k] = 0;
      }
      start = bias + o;
    }
    return acts[w.length - 1];
  }
  // Gradients of the weights (unless null) and of the inputs, from the gradient of the outputs in grads.at(-1).
  function backward(p, w, acts, grads, n, weights) {
    let end = p.length;
    if (weights) weights.fill(0);
    for (let d = w.length - 2; d >= 0; d--) {
      const i = w[d],
        o = w[d + 1],
        below = acts[d],
        g = grads[d + 1],
        next = grads[d],
        start = end - (i + 1) * o,
        bias = start + i * o;
      for (let r = 0; r < n; r++) {
        const from = r * i,
          to = r * o;
        if (weights) for (let k = 0; k < o; k++) weights[bias + k] += g[to + k];
        for (let j = 0; j < i; j++) {
          const x = below[from + j],
            at = start + j * o;
          let sum = 0;
          if (d === 0 || x > 0) for (let k = 0; k < o; k++) sum += p[at + k] * g[to + k];
          next[from + j] = sum;
          if (weights && x !== 0) for (let k = 0; k < o; k++) weights[at + k] += x * g[to + k];
        }
      }
      end = start;
    }
    return grads[0];
  }
  const optimizer = (p, rate) => {
    const first = new Float64Array(p.length),
      second = new Float64Array(p.length);
    let steps = 0;
    return (gradient) => {
      steps += 1;
      const c1 = 1 - 0.9 ** steps,
        c2 = 1 - 0.999 ** steps;
      for (let j = 0; j < p.length; j++) {
        const g = gradient[j];
        first[j] += (g - first[j]) * 0.1;
        second[j] = 0.999 * second[j] + 0.001 * g * g;
        p[j] -= ((rate / c1) * first[j]) / (Math.sqrt(second[j] / c2) + 1e-8);
      }
    };
  };

  const A = sizes.actor,
    C = sizes.critic;
  const actor = born(A, setup.actor),
    critics = [born(C, setup.critics?.[0]), born(C, setup.critics?.[1])];
  if (b.twins) critics[1].set(critics[0]);
  const actorTarget = actor.slice(),
    targets = critics.map((p) => p.slice());
  const stepActor = optimizer(actor, S.actor_learning_rate),
    stepCritics = critics.map((p) => optimizer(p, S.critic_learning_rate));
  const criticGradient = new Float64Array(critics[0].length),
    actorGradient = new Float64Array(actor.length);
  const rooms = {};
  const space = (name, w, n) => (rooms[`${name}${n}`] ||= { acts: room(w, n), grads: room(w, n) });

  const force = (p, states, n, name = "act") => {
    const { acts } = space(name, A, n);
    acts[0].set(states);
    const out = forward(p, A, acts, n);
    for (let r = 0; r < n; r++) out[r] = Math.tanh(out[r]);
    return out;
  };
  const q = (p, states, actions, n, name) => {
    const { acts } = space(name, C, n),
      x = acts[0];
    for (let r = 0; r < n; r++) {
      x[3 * r] = states[2 * r];
      x[3 * r + 1] = states[2 * r + 1];
      x[3 * r + 2] = actions[r];
    }
    return forward(p, C, acts, n);
  };

  // The environment: one move of the cart, as src/td3/environments/rail.py has it.
  const END = 2;
  const bounded = (v, low, high) => Math.max(low, Math.min(high, v));
  const move = (x, v, a) => {
    const v2 = bounded(0.9 * v + 0.4 * a, -END, END),
      moved = x + 0.1 * v2,
      left = Math.abs(moved) > END;
    return [bounded(moved, -END, END), v2, -(x * x + 0.1 * v * v + 0.001 * a * a) - (left ? 60 : 0), left];
  };

  // The replay buffer: s | a | s' | r | terminated, and whether the episode ended at the time limit.
  const rows = new Float64Array(capacity * 7),
    late = new Uint8Array(capacity);
  let added = 0,
    updates = 0,
    x = 0,
    v = 0,
    clock = 0;
  const begin = () => {
    x = (2 * reset_.uniform() - 1) * 1.6;
    v = (2 * reset_.uniform() - 1) * 0.8;
    clock = 0;
  };
  begin();
  function store(random) {
    const noise = explore.normal() * S.exploration_noise,
      any = 2 * explore.uniform() - 1,
      a = random ? any : bounded(force(actor, [x, v], 1)[0] + noise, -1, 1),
      [x2, v2, r, left] = move(x, v, a),
      at = added % capacity;
    clock += 1;
    if (!(b.oldest && added >= capacity)) {
      rows.set([x, v, a, x2, v2, r, left ? 1 : 0], at * 7);
      late[at] = !left && clock >= 100 ? 1 : 0;
    }
    added += 1;
    x = x2;
    v = v2;
    if (left || clock >= 100) begin();
  }
  for (let j = 0; j < S.learning_starts; j++) store(true);

  const state = new Float64Array(2 * B),
    next = new Float64Array(2 * B),
    action = new Float64Array(B),
    reward = new Float64Array(B),
    ended = new Float64Array(B),
    y = new Float64Array(B),
    ones = new Float64Array(B).fill(1);
  const tau = b.hardcopy ? 1 : S.tau;
  const keep = b.mean ? (p, q_) => (p + q_) / 2 : b.max ? Math.max : b.first ? (p) => p : Math.min;
  // Steps 5 to 9 for any states: the Bellman target.
  function bellman(n, states, rewards, ends, noise, out, name = "target") {
    const own = b.online || b.notargets,
      judges = b.notargets ? critics : targets,
      a = force(own ? actor : actorTarget, states, n, `${name}-actor`).slice();
    if (noise && !b.nosmooth)
      for (let j = 0; j < n; j++) {
        const clipped = b.noclip ? noise[j] : bounded(noise[j], -S.target_noise_clip, S.target_noise_clip);
        a[j] = b.noclamp ? a[j] + clipped : bounded(a[j] + clipped, -1, 1);
      }
    const q1 = q(judges[0], states, a, n, `${name}-1`),
      q2 = q(judges[1], states, a, n, `${name}-2`);
    for (let j = 0; j < n; j++) out[j] = rewards[j] + S.gamma * (1 - ends[j]) * keep(q1[j], q2[j]);
    return out;
  }
  const noise = new Float64Array(B);
  let drawn = null;
  function update(given) {
    const filled = Math.min(added, capacity);
    drawn = given || { rows: [], normal: [] };
    for (let j = 0; j < B; j++) {
      const random = sample.uniform();
      if (!given) {
        drawn.rows.push(b.newest ? (added - B + j) % capacity : Math.floor(random * filled));
        drawn.normal.push(smooth.normal());
      }
      const at = drawn.rows[j] * 7;
      state[2 * j] = rows[at];
      state[2 * j + 1] = rows[at + 1];
      action[j] = rows[at + 2];
      next[2 * j] = rows[at + 3];
      next[2 * j + 1] = rows[at + 4];
      reward[j] = rows[at + 5];
      ended[j] = b.nodeath ? 0 : b.timeout && late[drawn.rows[j]] ? 1 : rows[at + 6];
      noise[j] = drawn.normal[b.onenoise ? 0 : j] * S.target_policy_noise;
    }
    bellman(B, next, reward, ended, noise, y);
    const asked = b.ownaction ? force(actor, state, B, "own").slice() : action;
    let meanY = 0;
    for (let j = 0; j < B; j++) meanY += y[j] / B;
    let loss = 0;
    critics.forEach((p, twin) => {
      if (twin && b.onecritic) return;
      const { acts, grads } = space("critic", C, B),
        out = q(p, state, asked, B, "critic"),
        g = grads[C.length - 1];
      for (let j = 0; j < B; j++) {
        const error = out[j] - (b.broadcast ? meanY : y[j]);
        g[j] = (2 * error) / B;
        loss += (error * error) / B;
      }
      backward(p, C, acts, grads, B, criticGradient);
      stepCritics[twin](criticGradient);
    });
    updates += 1;
    const delay = b.nodelay ? 1 : S.policy_delay;
    const turn = updates % delay === 0;
    if (turn && !b.stored) {
      const { acts, grads } = space("own", A, B),
        own = force(actor, state, B, "own"),
        judged = space("judge", C, B);
      q(critics[0], state, own, B, "judge");
      judged.grads[C.length - 1].set(ones);
      const inputs = backward(critics[0], C, judged.acts, judged.grads, B, null),
        g = grads[A.length - 1];
      for (let j = 0; j < B; j++) g[j] = (-inputs[3 * j + 2] * (1 - own[j] * own[j])) / B;
      backward(actor, A, acts, grads, B, actorGradient);
      stepActor(actorGradient);
    }
    if (turn || b.everyupdate) {
      for (let j = 0; j < actor.length; j++) actorTarget[j] += tau * (actor[j] - actorTarget[j]);
      targets.forEach((p, twin) => {
        for (let j = 0; j < p.length; j++) p[j] += tau * (critics[twin][j] - p[j]);
      });
    }
    return loss;
  }

  // What a run is measured by, from fixed starts, without exploration.
  const N = starts.length / 2,
    still = new Float64Array(N),
    yBefore = new Float64Array(N),
    yNow = new Float64Array(N);
  let moved = 0,
    movedOver = 0;
  const edge = [];
  for (let j = 0; j < 40; j++) edge.push(1.2 + (0.75 * j) / 39, 2 - (j % 4) * 0.25);
  function play(steps) {
    const now = Float64Array.from(starts),
      total = new Float64Array(N),
      on = new Uint8Array(N).fill(1);
    let weight = 1;
    for (let step = 0; step < steps; step++) {
      const a = force(actor, now, N, "play");
      for (let j = 0; j < N; j++) {
        if (!on[j]) continue;
        const [x2, v2, r, left] = move(now[2 * j], now[2 * j + 1], a[j]);
        total[j] += weight * r;
        now[2 * j] = x2;
        now[2 * j + 1] = v2;
        if (left) on[j] = 0;
      }
      weight *= S.gamma;
    }
    return total;
  }
  const mean = (all) => all.reduce((a, b) => a + b, 0) / all.length;
  function measure() {
    const earned = play(300),
      own = q(critics[0], starts, force(actor, starts, N, "play"), N, "measure").slice();
    let sharp = 0;
    const a0 = force(actor, starts, N, "play").slice(),
      shifted = (d) => q(critics[0], starts, a0.map((a) => a + d), N, "measure").slice(),
      up = shifted(0.15),
      down = shifted(-0.15);
    for (let j = 0; j < N; j++) sharp += Math.abs(up[j] + down[j] - 2 * own[j]) / N;
    const out = {
      update: updates,
      return: mean(play(100)),
      earned: mean(earned),
      q: mean(own),
      gap: mean(own) - mean(earned),
      error: mean(own.map((value, j) => Math.abs(value - earned[j]))),
      jitter: movedOver ? moved / movedOver : 0,
      sharp,
      edge: 0,
    };
    out.edge = mean(q(critics[0], Float64Array.from(edge), new Float64Array(40).fill(1), 40, "edge"));
    moved = movedOver = 0;
    return out;
  }
  const none = new Float64Array(N);
  return {
    // One env step and one update; how far y of the fixed starts moves is followed from update to update.
    step() {
      store(false);
      update();
      const watched = bellman(N, starts, none, none, null, yNow, "watch");
      if (updates > 1) {
        for (let j = 0; j < N; j++) moved += Math.abs(watched[j] - yBefore[j]) / N;
        movedOver += 1;
      }
      yBefore.set(watched);
    },
    measure,
    networks: () => ({ actor, critics, actorTarget, targets }),
    drawn: () => drawn,
    cart: () => [x, v],
    buffer: () => ({ rows: rows.subarray(0, Math.min(added, capacity) * 7), late }),
    y: () => y,
  };
}
