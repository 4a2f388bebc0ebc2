// Reads profiles with published readers: pprof's decoder, speedscope's schema, speedscope itself in a browser, and
// the command line of the Firefox Profiler.

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
/** The deadline of every wait. */
const DEADLINE_MS = 60_000;

const SPEEDSCOPE = join(process.env.READERS, "speedscope/dist/release");

export const profile = (name) => readFileSync(join(process.env.PROFILES, name));

/** Decodes a pprof profile and replaces string indexes by strings. */
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

/** The violations of speedscope's schema in a document. */
export function brokenRules(document) {
  const { default: Ajv } = require("ajv");
  const schema = JSON.parse(readFileSync(join(SPEEDSCOPE, "file-format-schema.json"), "utf8"));
  const validate = new Ajv({ strict: false }).compile(schema);
  return validate(document) ? [] : validate.errors;
}

/** Opens a file in speedscope like its command line does, and returns the title of the page and the hottest functions
 * of the table.
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

/** The output of the Firefox Profiler's commands for a file. */
export async function firefox(name, ...questions) {
  const folder = mkdtempSync(join(tmpdir(), "firefox-"));
  const env = { ...process.env, PROFILER_CLI_SESSION_DIR: folder };
  // The command `load` does the same, but fails if a busy machine takes half a second for it.
  const loading = [FIREFOX_PROFILER, "--daemon", join(process.env.PROFILES, name), "--session", "test"];
  const daemon = spawn(process.execPath, loading, { env, stdio: "ignore" });
  const ended = new Promise((resolve) => daemon.once("exit", resolve));
  const ask = (question) => {
    const words = [FIREFOX_PROFILER, ...question, "--json", "--session", "test"];
    return JSON.parse(execFileSync(process.execPath, words, { env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }));
  };
  try {
    // Commands fail before the daemon listens. It creates this file last.
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

/** The stacks of a thread in the Firefox Profiler's format, root first, each with its time and weight. */
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
