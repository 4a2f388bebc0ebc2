// The published readers of other tools: pprof's decoder, speedscope's schema, and speedscope itself in a browser.

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

import { Browser } from "../page/browser.mjs";

const require = createRequire(join(process.env.READERS, "x.js"));
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

/** The title of speedscope's page after it has opened a file, in the way its own command line opens one. */
export async function titleInSpeedscope(name) {
  const script = join(process.env.PROFILES, `${name}.js`);
  writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(name)}, "${profile(name).toString("base64")}")`);
  const browser = await Browser.start();
  try {
    await browser.call("Page.navigate", { url: `file://${join(SPEEDSCOPE, "index.html")}#localProfilePath=${script}` });
    await browser.until("document.title !== 'speedscope' && document.title !== ''");
    await browser.picture(`speedscope-${name}`);
    return await browser.evaluate("document.title");
  } finally {
    await browser.stop();
    rmSync(script);
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
