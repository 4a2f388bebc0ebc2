// Shortens function names to a length.

import { listNameForms } from "./name_forms.js";
import { required } from "./required.js";

/** @import { Functions } from "./document.js" */

/** Caches the forms of names. */
export class NameShortener {
  constructor(/** @type {Functions} */ functions) {
    this.functions = functions;
    /** @type {Map<number, string[]>} */
    this.forms = new Map();
  }

  /** The longest form of a name that fits, or the shortest form, truncated. */
  shorten(functionIndex, /** @type {number} */ maxLength) {
    let names = this.forms.get(functionIndex);
    if (!names) {
      names = listNameForms(this.functions.name[functionIndex]);
      this.forms.set(functionIndex, names);
    }
    const shortest = required(names.at(-1));
    return names.find((name) => name.length <= maxLength) ?? `${shortest.slice(0, Math.max(1, maxLength - 1))}…`;
  }
}
