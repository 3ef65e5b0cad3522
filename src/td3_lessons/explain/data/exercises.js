"use strict";
// Fifteen functions to write, each checked on the update that the page opens with; what differs is told with its row.

const exercises = (() => {
  const R = () => run(start, POKES),
    list = (v) => Array.from(v),
    settings = facts.settings,
    net = (p) => (s, a) => score(p, Float64Array.from(s), Float64Array.from(a), a.length),
    rows = (made) => (j) => `row ${j + 1}${made.batch.terminated[j] ? ", which terminated" : made.batch.timed_out[j] ? ", a time-out" : ""}`;
  // [step, what to write, signature, solution, arguments, what the values belong to]
  const all = [
    [1, "Append a row to the buffer; keep the newest `capacity` rows, oldest first.", "store(buffer, row, capacity)", "return [...buffer, row].slice(-capacity);",
      () => [[[1], [2], [3], [4]], [5], 4], () => (j) => `place ${j + 1} of four`],
    [2, "Stretch the network's output to the range: middle + half · tanh. One number per row.", "policy(outputs, low, high)", "return outputs.map((x) => (low + high) / 2 + ((high - low) / 2) * Math.tanh(x));",
      () => [[-3, -0.5, 0, 0.5, 3], -0.3, 1], () => (j) => `output ${j + 1}`],
    [3, "Return both targets: copies of the two critics that do not change when the critics do.", "makeTargets(critic1, critic2)", "return [critic1.slice(), critic2.slice()];",
      () => [list(R().critics[0]).slice(0, 6), list(R().critics[1]).slice(0, 6)], () => (j) => `weight ${j + 1}`],
    [4, "Draw `count` rows of the buffer, uniformly, with replacement; `random()` gives a number in [0, 1).", "sample(filled, count, random)", "return Array.from({ length: count }, () => Math.floor(random() * filled));",
      () => { let n = 0; return [1282, 8, () => [0.1, 0.9, 0.4, 0.1, 0.7, 0.999, 0, 0.5][n++ % 8]]; }, () => (j) => `draw ${j + 1}`],
    [5, "The next actions, of the right actor.", "nextAction(actor, actorTarget, nextState)", "return actorTarget(nextState);",
      () => [(s) => list(act(R().actor, s, batchSize)), (s) => list(act(R().actorTarget, s, batchSize)), R().batch.next_state], () => rows(R())],
    [6, "Add noise σ · normal, clipped to ±c; then clamp to the range.", "smooth(nextAction, normal, sigma, c, low, high)", "return nextAction.map((a, j) => Math.max(low, Math.min(high, a + Math.max(-c, Math.min(c, sigma * normal[j])))));",
      () => [list(R().next_action), list(array(`normal.${start}`)), 0.6, 0.5, -1, 1], () => rows(R())],
    [7, "Both target critics, for the same smoothed actions: [Q1′, Q2′].", "targetQ(q1Target, q2Target, nextState, smoothed)", "return [q1Target(nextState, smoothed), q2Target(nextState, smoothed)];",
      () => [...R().targets.map(net), R().batch.next_state, list(R().smoothed)], () => rows(R())],
    [8, "Keep the smaller Q-value, row by row.", "minQ(q1, q2)", "return q1.map((q, j) => Math.min(q, q2[j]));",
      () => R().target_q_values.map(list), () => rows(R())],
    [9, "The Bellman target of every row.", "bellman(reward, terminated, nextQ, gamma)", "return reward.map((r, j) => r + gamma * (1 - terminated[j]) * nextQ[j]);",
      () => [list(R().batch.reward), list(R().batch.terminated), list(R().next_q), settings.gamma, list(R().batch.timed_out)], () => rows(R())],
    [10, "Both critics, for the action that was really taken: [Q1, Q2].", "predict(q1, q2, state, action, policyAction)", "return [q1(state, action), q2(state, action)];",
      () => [...R().critics.map(net), R().batch.state, list(R().batch.action), list(R().policy)], () => rows(R())],
    [11, "The loss: MSE of critic 1 plus MSE of critic 2.", "loss(q1, q2, y)", "const mse = (q) => q.reduce((sum, v, j) => sum + (v - y[j]) ** 2, 0) / y.length;\n  return mse(q1) + mse(q2);",
      () => [...R().q.map(list), list(R().y)], () => () => "the loss"],
    [12, "Improve both critics with `step(weights, gradient)`, and nothing else: [critic 1, critic 2, target 1, target 2].", "improve(critics, targets, gradients, step)", "return [...critics.map((p, i) => step(p, gradients[i])), ...targets];",
      () => [R().critics.map(list), R().targets.map(list), R().criticGradients.map(list), (p, g) => p.map((w, j) => w - 0.001 * g[j])], () => (j) => `weight ${j + 1}`],
    [13, "The actor's loss, from both critics' Q-values of its own actions.", "actorLoss(q1, q2)", "return -q1.reduce((sum, q) => sum + q, 0) / q1.length;",
      () => R().ownScores.map(list), () => () => "the loss"],
    [14, "Move the actor target by the share τ.", "polyak(target, online, tau)", "return target.map((w, j) => w + tau * (online[j] - w));",
      () => [list(R().actorTarget), list(R().actorAfter), settings.tau], () => (j) => `weight ${j + 1}`],
    [15, "Move both critic targets, in updates in which the actor moves: [target 1, target 2].", "polyakBoth(targets, critics, tau, update, delay)", "if (update % delay) return targets;\n  return targets.map((p, i) => p.map((w, j) => w + tau * (critics[i][j] - w)));",
      () => [R().targets.map(list), R().criticsAfter.map(list), settings.tau, [283, 284], 2], () => (j) => `weight ${j + 1}`],
  ];
  return all.map(([step, told_, signature, solution, inputs, where]) => ({ step, told: told_, signature, inputs, where, stub: `function ${signature} {\n  // your code\n}`, solution: `function ${signature} {\n  ${solution}\n}` }));
})();
const written = new Map();
const compiled = (code) => new Function(`"use strict"; return (${code.trim().replace(/;$/, "")});`)();
// What the function gives; a list of updates among the arguments means that it is called for each.
function applied(exercise, code) {
  const call = compiled(code),
    arguments_ = exercise.inputs(),
    copy = (v) => (Array.isArray(v) ? v.map(copy) : v),
    once = (each) => call(...each.map(copy)),
    several = exercise.step === 15;
  if (exercise.step === 3) {
    const given = arguments_.map(copy),
      made = call(...given);
    given.forEach((p) => p.fill(9)); // the critics are trained on: copies must not follow
    return copy(made);
  }
  return several ? arguments_[3].map((update) => once([...arguments_.slice(0, 3), update, arguments_[4]])) : once(arguments_);
}
const flatOf = (v) => (typeof v === "number" ? [v] : v === null || v === undefined || typeof v[Symbol.iterator] !== "function" ? [NaN] : Array.from(v).flatMap(flatOf));
// One sentence: right, or which number should have been which.
function checked(step, code) {
  const exercise = exercises[step - 1],
    name = exercise.where(),
    wanted = flatOf(applied(exercise, exercise.solution));
  let made;
  try {
    made = applied(exercise, code);
  } catch (error) {
    return { right: false, said: `It stops with “${error.message}”.` };
  }
  if (made === undefined) return { right: false, said: "It returns nothing yet." };
  const given = flatOf(made);
  if (given.length !== wanted.length) return { right: false, said: `It returns ${given.length} numbers; it should be ${wanted.length}.` };
  const bad = wanted.findIndex((v, j) => !(Math.abs(given[j] - v) <= 1e-9 * (1 + Math.abs(v))));
  if (bad < 0) return { right: true, said: "Right, to the last bit that matters." };
  const many = wanted.filter((v, j) => !(Math.abs(given[j] - v) <= 1e-9 * (1 + Math.abs(v)))).length,
    lists = Array.isArray(made) && made.length > 1 && typeof made[0] !== "number" && wanted.length > 4 ? made.length : 1,
    part = Math.floor(bad / (wanted.length / lists)),
    place = bad % (wanted.length / lists);
  return {
    right: false,
    said: `${name(place).replace(/^./, (c) => c.toUpperCase())}${lists > 1 ? ` of list ${part + 1}` : ""}: yours is ${show(given[bad], 5)}, it should have been ${show(wanted[bad], 5)}; ${many} of ${wanted.length} numbers differ.`,
  };
}
let exercise_ = 9;
function exercisesRender() {
  const solved = [...written.values()].filter((w) => w.right).length,
    current = exercises[exercise_ - 1];
  put("lesson-list", exercises.map(({ step }) => `<button data-exercise="${step}" aria-pressed="${step === exercise_}">${step}${written.get(step)?.right ? " ✓" : ""}</button>`).join(""));
  put("lesson-told", `<b>Step ${current.step}.</b> ${ticked(esc(current.told))}`);
  $("lesson-count").textContent = `${solved} of ${exercises.length} right`;
  put("lesson-says", esc(written.get(exercise_)?.said ?? ""));
}
function exercisesBegin() {
  const open_ = (step) => {
    exercise_ = step;
    $("lesson-code").value = written.get(step)?.code ?? exercises[step - 1].stub;
    exercisesRender();
  };
  $("lesson-list").addEventListener("click", (event) => {
    const step = +event.target.closest("button")?.dataset.exercise;
    if (!step) return;
    open_(step);
    document.querySelector(`[data-exercise="${step}"]`).focus();
  });
  $("lesson-check").onclick = () => {
    const code = $("lesson-code").value;
    written.set(exercise_, { code, ...checked(exercise_, code) });
    exercisesRender();
  };
  $("lesson-solution").onclick = () => {
    $("lesson-code").value = exercises[exercise_ - 1].solution;
  };
  open_(exercise_);
}
