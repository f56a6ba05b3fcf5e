-- The beginning of all scripts. After it come the algorithms of the call's counters, each the
-- mirror of the file of the same name in crates/limit/src/, and then the operation on them.
--
-- ARGV[1] begins with the instant in microseconds, 0 for that of the server, and an opcode. A
-- record for each key follows: the number of the algorithm, whether the charge is enforced (1), the
-- cost, the limit, a span of time, and two more numbers that the algorithm defines. Instants are
-- microseconds since the epoch. All numbers are integers below 2^53, which doubles hold exactly.
-- They are packed, because Redis and Lua print and parse large numbers slowly, and not always
-- exactly.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- MAX_SKEW and ORDINARY_SKEW of crates/limit/src/skew.rs, in microseconds.
local MAX_SKEW, ORDINARY_SKEW = 5000000, 120000000
-- The end of time. Doubles are exact below it.
local NEVER = 9007199254740992
-- The largest count.
local MOST = 4294967295

local now, opcode = unpack('<dB', ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The charge on KEYS[i].
local function charge_on(i)
  local c = { key = KEYS[i] }
  c.kind, c.enforced, c.cost, c.limit, c.span, c.x, c.y =
    unpack('<BBI4I4ddd', ARGV[1], 10 + 34 * (i - 1))
  return c
end

-- The numbers that follow the records of this many charges.
local function numbers_after(charges)
  local numbers = {}
  for position = 10 + 34 * charges, #ARGV[1], 8 do
    numbers[#numbers + 1] = unpack('<d', ARGV[1], position)
  end
  return numbers
end

-- The time to live of a counter in milliseconds: until a second after it is over. A counter that is
-- never over is kept for 400 days without use.
local function ttl(ends)
  if ends >= NEVER then
    return '34560000000'
  end
  return string.format('%.0f', ceil(max(0, ends - now) / 1000) + 1000)
end

-- How far a state of a limit with this window may be ahead of the clock before it is healed.
local function tolerated_skew(window)
  return MAX_SKEW + min(window, ORDINARY_SKEW)
end

-- The stored state, as its algorithm packed it. A value of another length is not a state.
local function get(c, length)
  -- A value of another type is not a state either: pcall ignores the error, and SET replaces the
  -- value.
  local value = redis.pcall('GET', c.key)
  return value and #value == length and value
end

local function set(c, value, ends)
  call('SET', c.key, value, 'PX', ttl(ends))
end

-- The algorithms by number. KIND in the file of an algorithm stands for its number, which is
-- inserted when scripts are put together. Each algorithm has, for a charge c on a counter:
--   load(c)              reads what is stored
--   open(c)              updates it to this instant; sets c.fits, whether the cost fits, and
--                        c.healed, whether it was ahead of the clock
--   take(c)              takes the cost
--   on_denied(c)         updates it after a denial; returns whether it changed
--   save(c)              writes it
--   reply(c)             packs it for the reply
-- and only for the opcodes that need them, because creating a function takes time:
--   give_back(c, at, n)  gives back the charge with this receipt; returns whether it changed
--   renew(c, at, n)      renews the lease with this receipt; returns whether there is one
--   add(c, numbers)      adds the state that these numbers encode; returns whether to save it
--   join(c, numbers)     merges the state that these numbers encode, which counts the same charges;
--                        returns whether to save it, and whether it counts more now
local algorithms = {}

-- The opcodes, as in operation.rs: two of charge.lua, three of settle.lua, and one each of
-- seed.lua, add.lua and read_state.lua.
local CHARGE, PEEK, TAKE, GIVE_BACK, RENEW, SEED, ADD, READ_STATE = 0, 1, 2, 3, 4, 5, 6, 7
