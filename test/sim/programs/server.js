// SPDX-License-Identifier: GPL-2.0-only
// A shop of the size of its arguments: pages made of records that are all in memory, and a session that each request changes.
'use strict';
const http = require('http');
const [count, rows] = process.argv.slice(2).map(Number);
const objects = [];
for (let n = 0; n < count; n++) {
  const list = [];
  for (let r = 0; r < rows; r++)
    list.push({ id: n * rows + r, name: `flight ${n} of ${r}`, seats: (n * 7 + r) % 300, text: 'x'.repeat(40 + (r % 60)) + n });
  objects.push(list);
}
const sessions = new Map();
const server = http.createServer((request, answer) => {
  const n = Number(request.url.slice(1)) % count;
  const who = sessions.get(n % 50) || { seen: [] };
  who.seen.push(n);
  if (who.seen.length > 20)
    who.seen.shift();
  sessions.set(n % 50, who);
  answer.end(JSON.stringify(objects[n]));
});
server.keepAliveTimeout = 0;    // who idles keeps its connection
server.listen(0, '127.0.0.1', function () { console.log(this.address().port); });
