// SPDX-License-Identifier: GPL-2.0-only
// The critical workload, of AcmeAir's shape: a booking site whose web processes ask a process for authentication, and both a
// Redis.
//   node site.js seed REDIS USERS | auth SOCKET REDIS | web SOCKET REDIS AUTH
'use strict';
const http = require('http');
const net = require('net');

// A client of Redis: requests go out in the order in which they are asked, and answers come in that order.
class Redis {
  constructor(path) {
    this.waiting = [];
    this.data = Buffer.alloc(0);
    this.socket = net.connect(path);
    this.socket.on('data', (more) => this.take(more));
    this.socket.on('error', (error) => { console.error('redis:', error.message); process.exit(1); });
  }

  ask(...words) {
    let text = `*${words.length}\r\n`;
    for (const word of words) text += `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`;
    this.socket.write(text);
    return new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
  }

  take(more) {
    this.data = this.data.length ? Buffer.concat([this.data, more]) : more;
    let at = 0;
    while (this.waiting.length) {
      const found = this.parse(at);
      if (!found) break;
      at = found.end;
      const one = this.waiting.shift();
      if (found.value instanceof Error) one.reject(found.value); else one.resolve(found.value);
    }
    this.data = this.data.subarray(at);
  }

  parse(at) {
    const end = this.data.indexOf('\r\n', at);
    if (end < 0) return null;
    const line = this.data.toString('utf8', at + 1, end);
    switch (this.data[at]) {
      case 0x2b: return { value: line, end: end + 2 };                  // +
      case 0x2d: return { value: new Error(line), end: end + 2 };       // -
      case 0x3a: return { value: Number(line), end: end + 2 };          // :
      case 0x24: {                                                      // $
        const length = Number(line);
        if (length < 0) return { value: null, end: end + 2 };
        if (this.data.length < end + 2 + length + 2) return null;
        return { value: this.data.toString('utf8', end + 2, end + 2 + length), end: end + 4 + length };
      }
      default: {                                                        // *
        const list = [];
        let next = end + 2;
        for (let i = 0; i < Number(line); i++) {
          const item = this.parse(next);
          if (!item) return null;
          list.push(item.value);
          next = item.end;
        }
        return { value: list, end: next };
      }
    }
  }
}

const CITIES = 30, DAYS = 30, BOOKINGS = 6;
const customer = (n) => ({ id: n, name: `customer ${n}`, password: `secret ${n}`, status: 'GOLD', miles: n * 7,
  address: { street: `${n} Main Street`, city: 'Anytown', state: 'NC', country: 'USA', code: 27617 },
  phone: `919-${n}`, remarks: `${n} prefers a seat at the window; `.repeat(24) });
const booking = (user, flight, at) => JSON.stringify({ user, flight, at, seat: at % 60, fare: 'economy',
  terms: `fare rules of flight ${flight}; `.repeat(10) });
const flightKey = (from, to) => `flights:${from % CITIES}:${to % CITIES}`;

async function seed(redis, users) {
  let some = [];
  const done = async (one) => { some.push(one); if (some.length >= 500) { await Promise.all(some); some = []; } };
  for (let from = 0; from < CITIES; from++) {
    for (let to = 0; to < CITIES; to++) {
      for (let day = 0; day < DAYS; day++) {
        await done(redis.ask('ZADD', flightKey(from, to), day, JSON.stringify({ id: `AA${from}-${to}-${day}`, day, from, to,
          departs: '08:00', arrives: '12:30', economy: 200, first: 500, seats: 180, aircraft: 'B747' })));
      }
    }
  }
  for (let n = 0; n < users; n++) {
    await done(redis.ask('SET', `customer:${n}`, JSON.stringify(customer(n))));
    await done(redis.ask('SET', `session:${n}`, `token ${n}`));
    for (let b = 0; b < BOOKINGS; b++) await done(redis.ask('LPUSH', `bookings:${n}`, booking(n, `AA${b}-${n % CITIES}-1`, b)));
  }
  await Promise.all(some);
  console.log('seeded');
  process.exit(0);
}

function serve(path, handle) {
  const server = http.createServer((request, response) => {
    const url = new URL(request.url, 'http://site');
    const user = Number(url.searchParams.get('user')), n = Number(url.searchParams.get('n'));
    handle(url.pathname.slice(1), user, n).then((found) => {
      const text = JSON.stringify({ user, ...found });
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
      response.end(text);
    }).catch((error) => {
      response.writeHead(500, { 'Content-Length': 0, 'X-Error': String(error.message).replace(/[^ -~]/g, '?') });
      response.end();
    });
  });
  server.keepAliveTimeout = 0;          // connections stay
  server.listen(path, () => console.log('ready'));
}

function auth(redis) {
  return async (what, user) => {
    if (what === 'login') {
      const known = JSON.parse(await redis.ask('GET', `customer:${user}`));
      if (known.password !== `secret ${user}`) throw new Error('password');
      await redis.ask('SET', `session:${user}`, `token ${user}`);
    }
    return { token: await redis.ask('GET', `session:${user}`) };
  };
}

function web(redis, authPath) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
  const authenticate = (what, user) => new Promise((resolve, reject) => {
    http.get({ socketPath: authPath, path: `/${what}?user=${user}`, agent }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => {
        const ok = response.statusCode === 200 && JSON.parse(Buffer.concat(parts).toString()).token === `token ${user}`;
        if (ok) resolve(); else reject(new Error('not logged in'));
      });
    }).on('error', reject);
  });
  const flights = async (n) => (await redis.ask('ZRANGEBYSCORE', flightKey(n, n >> 5), n % DAYS, n % DAYS + 3)).map(JSON.parse);
  const actions = {
    login: async () => ({ ok: true }),
    flights: async (user, n) => ({ out: await flights(n), back: await flights((n >> 5) + n % 32 * 32) }),
    profile: async (user) => ({ customer: JSON.parse(await redis.ask('GET', `customer:${user}`)) }),
    update: async (user, n) => {
      const known = JSON.parse(await redis.ask('GET', `customer:${user}`));
      known.miles = n;
      return { ok: await redis.ask('SET', `customer:${user}`, JSON.stringify(known)) };
    },
    bookings: async (user) => ({ list: (await redis.ask('LRANGE', `bookings:${user}`, 0, -1)).map(JSON.parse) }),
    book: async (user, n) => ({ number: await redis.ask('LPUSH', `bookings:${user}`, booking(user, `AA${n}`, n)) }),
    cancel: async (user) => ({ left: await redis.ask('LTRIM', `bookings:${user}`, 0, BOOKINGS - 1) }),
  };
  return async (what, user, n) => {
    await authenticate(what === 'login' ? 'login' : 'check', user);
    return actions[what](user, n);
  };
}

const [role, path, ...more] = process.argv.slice(2);
if (role === 'seed') seed(new Redis(path), Number(more[0]));
else if (role === 'auth') serve(path, auth(new Redis(more[0])));
else serve(path, web(new Redis(more[0]), more[1]));
