-- Makes a counter what it was elsewhere, unless it holds as much already or that is over.
--
-- KEYS[1]: the counter. ARGV[1] ends with the three numbers of its state.
-- Returns whether it did.

-- What is there and what comes are of the same limit: whichever has more counts what the other does.
-- First when it ends, then how much it is.
local function holds(c)
  if c.kind == 1 then
    return 0, now < c.reset and c.used or 0
  elseif c.kind == 2 then
    return c.expires, c.current
  end
  -- What is owed longer is more.
  return c.full, c.deficit or c.level
end

local c = charge_on(1)
local algorithm = algorithms[c.kind]
local is_there = call('EXISTS', KEYS[1]) == 1
if is_there and c.kind == 3 then
  return 0
end
local ends, amount = 0, 0
if is_there then
  algorithm.load(c)
  ends, amount = holds(c)
end
if algorithm.adopt(c, unpack('<ddd', ARGV[1], 44)) <= now then
  return 0
end
if is_there then
  local new_ends, new_amount = holds(c)
  if new_ends < ends or (new_ends == ends and new_amount <= amount) then
    return 0
  end
end
algorithm.save(c)
return 1
