// SPDX-License-Identifier: GPL-2.0-only
// The heap of a Node.js program that changes all the time: as Mutator.java, with objects and 32-bit words.
'use strict';
const fs = require('fs');
const PAGES = 4096, WORDS = 1024, KEYS = 2000;

class State {
  constructor(seed) {
    this.steps = 0;
    this.chain = seed >>> 0;
    this.pages = [];
    this.map = new Map();
    for (let i = 0; i < PAGES; i++) {
      const page = new Uint32Array(WORDS);
      for (let j = 0; j < WORDS; j++)
        page[j] = Math.imul(seed + i * WORDS + j, 0x9e3779b1);
      this.pages.push(page);
    }
  }

  step() {
    const p = this.pages[this.chain % PAGES], at = this.chain >>> 20;
    for (let i = 0; i < 64; i++) {
      const w = (at + i * 9) % WORDS;
      this.chain = (Math.imul(this.chain ^ p[w], 0x9e3779b1) + this.steps) >>> 0;
      this.chain = (this.chain ^ (this.chain >>> 15)) >>> 0;
      p[w] += this.chain;
    }
    const key = this.chain % KEYS, old = this.map.get(key);
    if (old !== undefined)
      this.chain = (this.chain + old.words[this.chain % old.words.length]) >>> 0;
    // The old one is garbage: the collector moves what stays.
    this.map.set(key, { text: `${key}:${this.chain}`, words: new Array(32 + this.chain % 200).fill(this.chain) });
    this.steps++;
  }
}

function different(a, b) {
  if (a.chain !== b.chain || a.map.size !== b.map.size)
    return true;
  for (const [key, value] of a.map)
    if (JSON.stringify(value) !== JSON.stringify(b.map.get(key)))
      return true;
  return a.pages.some((page, i) => Buffer.compare(Buffer.from(page.buffer), Buffer.from(b.pages[i].buffer)) !== 0);
}

function answer(dir, name, text) {
  fs.writeFileSync(`${dir}/${name}.part`, `${text}\n`);
  fs.renameSync(`${dir}/${name}.part`, `${dir}/${name}`);
}

const dir = process.argv[2];
let seed = 1, state = new State(seed);
answer(dir, 'ready', 'ready');
setInterval(() => {
  for (let i = 0; i < 100; i++)
    state.step();
  if (!fs.existsSync(`${dir}/ask`))
    return;
  const again = new State(seed);
  while (again.steps < state.steps)
    again.step();
  fs.unlinkSync(`${dir}/ask`);
  answer(dir, 'verdict', different(state, again) ? `FAIL the heap is not what ${state.steps} steps make of it` : `PASS ${state.steps}`);
  state = new State(++seed);
}, 2);
