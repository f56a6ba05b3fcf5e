-- What all scripts begin with. After it come the algorithms of the call's counters, each the mirror
-- of the file of the same name in src/limit/, and then what is done with them.
--
-- ARGV[1] begins with the instant in microseconds, 0 for that of the server, and a word for the
-- script; then follows a record for each key: the number of the algorithm, whether the charge is
-- enforced (1), the cost, the limit, a span of time, and two more numbers that the algorithm knows.
-- Instants are microseconds since the epoch. All numbers are integers below 2^53, which doubles hold
-- exactly; packed, for neither Redis nor Lua prints and parses large ones fast, or always right.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- How far a state may be ahead of the clock where windows are short, and what is added where not.
local SKEW, ORDINARY = 5000000, 120000000
-- The end of time, and of what doubles count exactly.
local NEVER = 9007199254740992
-- The largest count.
local MOST = 4294967295

local now, word = unpack('<dB', ARGV[1])
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

-- The numbers that follow so many charges.
local function numbers_after(charges)
  local numbers = {}
  for position = 10 + 34 * charges, #ARGV[1], 8 do
    numbers[#numbers + 1] = unpack('<d', ARGV[1], position)
  end
  return numbers
end

-- Milliseconds until a counter may be forgotten: a second after it is over. One that is never over
-- may be after 400 days without use.
local function ttl(ends)
  if ends >= NEVER then
    return '34560000000'
  end
  return string.format('%.0f', ceil(max(0, ends - now) / 1000) + 1000)
end

-- How far a state of a limit with this window may be ahead of the clock before it is healed.
local function borne(window)
  return SKEW + min(window, ORDINARY)
end

-- A state is what its algorithm packed; of any other length it is none.
local function get(c, length)
  -- Of another type it is none of ours, and SET puts one of ours in its place.
  local value = redis.pcall('GET', c.key)
  return value and #value == length and value
end

local function set(c, value, ends)
  call('SET', c.key, value, 'PX', ttl(ends))
end

-- By number. Each algorithm has, for a charge c on a counter:
--   load(c)              reads what is stored
--   open(c)              brings it to this instant; c.fits: whether the cost fits; c.healed:
--                        whether it was ahead of the clock
--   take(c)              takes the cost
--   penalize(c)          what a denial changes; true: something
--   save(c)              writes it
--   tell(c)              packs it for the reply
-- and only where the word asks for it, for a function that is made takes time:
--   give_back(c, at, n)  gives back what is loaded of the charge with this receipt; true: something
--   renew(c, at, n)      renews the lease with this receipt; true: it is there
--   add(c, numbers)      adds a state that these say; true: there is something to save
--   join(c, numbers)     counts what a state does that these say too; true: there is something to
--                        save, and true: it counts more now
local algorithms = {}

-- The words. The first two are of charge.lua, the next three of settle.lua, then come those of
-- seed.lua, of add.lua and of tell.lua.
local CHARGE, PEEK, TAKE, GIVE_BACK, RENEW, SEED, ADD, STATE = 0, 1, 2, 3, 4, 5, 6, 7
