// Known shares of JIT code: run > roundOfWork > alpha 75 %, beta 25 %. Run it with `node --perf-basic-prof
// --interpreted-frames-native-stack shares.js SECONDS`, which writes /tmp/perf-PID.map and a log into the current
// folder.
"use strict";

const fs = require("node:fs");
const v8 = require("node:v8");
const vm = require("node:vm");

// Keeps the frame of each function.
v8.setFlagsFromString("--no-turbo-inlining");
v8.setFlagsFromString("--allow-natives-syntax");

function alpha(steps) {
  let state = steps | 0;
  for (let step = 0; step < steps; step++) state = (Math.imul(state, 1664525) + 1013904223) | 0;
  return state;
}

function beta(steps) {
  let state = steps | 0;
  for (let step = 0; step < steps; step++) state = (Math.imul(state, 1664525) + 1013904223) | 0;
  return state;
}

// Rounds of constant length can be in step with the sampling timer.
function roundOfWork() {
  const unit = 12500 + Math.floor(25000 * Math.random());
  return alpha(3 * unit) ^ beta(unit);
}

function run(rounds) {
  let sum = 0;
  for (let round = 0; round < rounds; round++) sum ^= roundOfWork();
  return sum;
}

// Rounds block the event loop, so the end of standard input is checked between them. A number of rounds, not a time: on a busy
// machine a time passes with less work, and the event loop has a larger share.
function slice(endsAt) {
  if (Date.now() >= endsAt) process.exit(0);
  run(200);
  setImmediate(slice, endsAt);
}

// Compiles the functions before the work begins: V8 itself would do so at a time of its choice, on another thread, and
// a busy machine would run interpreted code meanwhile.
function optimize(...functions) {
  const each = (action) => functions.forEach(vm.runInThisContext(`(compiled) => ${action}(compiled)`));
  each("%PrepareFunctionForOptimization");
  for (let round = 0; round < 3; round++) roundOfWork();
  each("%OptimizeFunctionOnNextCall");
  roundOfWork();
}

process.on("exit", () => {
  fs.rmSync(`/tmp/perf-${process.pid}.map`, { force: true });
  const logs = fs.readdirSync(".").filter((file) => file.endsWith(`-${process.pid}-v8.log`));
  for (const log of logs) fs.rmSync(log);
});
if (fs.fstatSync(0).isFIFO()) process.stdin.on("end", () => process.exit(0)).resume();
optimize(alpha, beta, roundOfWork);
console.log(`ready ${process.pid}`);
slice(Date.now() + 1000 * Number(process.argv[2] ?? 60));
