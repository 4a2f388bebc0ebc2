// Decodes columns of numbers from base64 VLQ text, the encoding of source maps. `column.rs` encodes them.

const DIGIT_BITS = 5;

/** Set in a digit if more digits of the number follow. */
const CONTINUATION_BIT = 1 << DIGIT_BITS;

/** The value of each base64 character by its character code. */
const DIGITS = new Uint8Array(128);
for (let digit = 0; digit < 64; digit += 1) {
  DIGITS["ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".charCodeAt(digit)] = digit;
}

/**
 * @template {Int32Array | Uint32Array | Uint8Array | Float64Array} Column
 * @param {string} text
 * @param {{new (length: number): Column}} Type
 */
export function readColumn(text, Type) {
  const column = new Type(countNumbers(text));
  let entry = 0;
  let number = 0;
  let placeValue = 1;
  for (let at = 0; at < text.length; at += 1) {
    const digit = DIGITS[text.charCodeAt(at)];
    // A shift would truncate counts to 32 bits.
    number += (digit % CONTINUATION_BIT) * placeValue;
    placeValue *= CONTINUATION_BIT;
    if (digit < CONTINUATION_BIT) {
      column[entry] = number;
      entry += 1;
      number = 0;
      placeValue = 1;
    }
  }
  return column;
}

/** Decodes signed numbers of at most 31 bits, whose lowest bit is the sign. */
export function readSignedColumn(/** @type {string} */ text) {
  const bits = readColumn(text, Uint32Array);
  const numbers = new Int32Array(bits.buffer);
  for (let entry = 0; entry < bits.length; entry += 1) numbers[entry] = (bits[entry] >>> 1) ^ -(bits[entry] & 1);
  return numbers;
}

/** Counts the last digits: each number has one. */
function countNumbers(/** @type {string} */ text) {
  let length = 0;
  for (let at = 0; at < text.length; at += 1) length += DIGITS[text.charCodeAt(at)] < CONTINUATION_BIT ? 1 : 0;
  return length;
}
