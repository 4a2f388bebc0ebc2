// The published readers of other tools: pprof's decoder, speedscope's schema, speedscope itself in a browser, and the
// Firefox Profiler for a terminal.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { gunzipSync } from "node:zlib";

import { Browser } from "../page/browser.mjs";

const require = createRequire(join(process.env.READERS, "x.js"));
/** Every wait ends by then. */
const DEADLINE_MS = 20_000;

const SPEEDSCOPE = join(process.env.READERS, "speedscope/dist/release");

export const profile = (name) => readFileSync(join(process.env.PROFILES, name));

/** A pprof profile with its texts in place of their numbers. */
export function pprof(name) {
  const { Profile } = require("pprof-format");
  const read = Profile.decode(gunzipSync(profile(name)));
  const text = (number) => read.stringTable.strings[Number(number)];
  const byId = (table) => new Map(table.map((entry) => [Number(entry.id), entry]));
  const [functions, locations, mappings] = [read.function, read.location, read.mapping].map(byId);
  const location = (id) => {
    const { line, mappingId, address } = locations.get(Number(id));
    const names = line.map(({ functionId }) => text(functions.get(Number(functionId)).name));
    const mapping = mappings.get(Number(mappingId));
    return { names, address: Number(address), file: mapping && text(mapping.filename), buildId: mapping && text(mapping.buildId) };
  };
  return {
    types: read.sampleType.map(({ type, unit }) => `${text(type)}/${text(unit)}`),
    defaultType: text(read.defaultSampleType),
    period: Number(read.period),
    timeNanos: BigInt(read.timeNanos),
    comments: read.comment.map(text),
    samples: read.sample.map(({ locationId, value, label }) => ({
      locations: locationId.map(location),
      values: value.map(Number),
      labels: Object.fromEntries(label.map(({ key, str, num }) => [text(key), Number(str) ? text(str) : Number(num)])),
    })),
  };
}

/** What a document breaks of speedscope's schema. */
export function brokenRules(document) {
  const { default: Ajv } = require("ajv");
  const schema = JSON.parse(readFileSync(join(SPEEDSCOPE, "file-format-schema.json"), "utf8"));
  const validate = new Ajv({ strict: false }).compile(schema);
  return validate(document) ? [] : validate.errors;
}

/**
 * What speedscope shows of a file, opened in the way its own command line opens one: the title of its page, and the
 * hottest functions of its table.
 */
export async function speedscope(name) {
  const script = join(process.env.PROFILES, `${name}.js`);
  writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(name)}, "${profile(name).toString("base64")}")`);
  const browser = await Browser.start();
  try {
    await browser.call("Page.navigate", { url: `file://${join(SPEEDSCOPE, "index.html")}#localProfilePath=${script}` });
    await browser.until("document.title !== 'speedscope' && document.title !== ''");
    const sandwich = "3";
    await browser.press(sandwich);
    await browser.until("document.querySelector('td')");
    await browser.picture(`speedscope-${name}`);
    const rows = await browser.evaluate(
      "[...document.querySelectorAll('tr')].map(({ children }) => [...children].map((cell) => cell.textContent))",
    );
    return {
      title: await browser.evaluate("document.title"),
      functions: rows.map(([total, self, name]) => ({ total, self, name })),
    };
  } finally {
    await browser.stop();
    rmSync(script);
  }
}

const FIREFOX_PROFILER = join(process.env.READERS, "@firefox-devtools/profiler-cli/dist/profiler-cli.js");

/** What the Firefox Profiler answers to questions about a file. */
export async function firefox(name, ...questions) {
  const folder = mkdtempSync(join(tmpdir(), "firefox-"));
  const env = { ...process.env, PROFILER_CLI_SESSION_DIR: folder };
  // Its command `load` starts the same, and gives up when a busy machine takes half a second for it.
  const loading = [FIREFOX_PROFILER, "--daemon", join(process.env.PROFILES, name), "--session", "test"];
  const daemon = spawn(process.execPath, loading, { env, stdio: "ignore" });
  const ended = new Promise((resolve) => daemon.once("exit", resolve));
  const ask = (question) => {
    const words = [FIREFOX_PROFILER, ...question, "--json", "--session", "test"];
    return JSON.parse(execFileSync(process.execPath, words, { env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }));
  };
  try {
    // Asked before it listens, it would be taken for dead. This file is the last that it makes.
    await until(() => existsSync(join(folder, "current.txt")));
    return questions.map(ask);
  } finally {
    daemon.kill();
    await ended;
    rmSync(folder, { recursive: true });
  }
}

async function until(condition) {
  const start = Date.now();
  while (!condition()) {
    assert.ok(Date.now() - start < DEADLINE_MS, `never true: ${condition}`);
    await pause(10);
  }
}

/** The stacks of a thread of the Firefox Profiler's format, root first, each with its time and weight. */
export function firefoxSamples(thread) {
  const { samples, stackTable, frameTable, funcTable, stringArray } = thread;
  const path = (node) =>
    node === null
      ? []
      : [...path(stackTable.prefix[node]), stringArray[funcTable.name[frameTable.func[stackTable.frame[node]]]]];
  let time = 0;
  return samples.stack.map((node, index) => {
    time += samples.timeDeltas[index];
    return { time, path: path(node), weight: samples.weight[index] };
  });
}
