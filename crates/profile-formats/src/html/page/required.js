// States that a value is there, where its type does not show it.

/**
 * Returns a value that is there in every call.
 * @template T
 * @param {T} value
 * @returns {NonNullable<T>}
 */
export function required(value) {
  if (value === null || value === undefined) throw new TypeError("a value is missing");
  return value;
}
