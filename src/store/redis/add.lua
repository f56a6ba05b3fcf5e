-- Adds what was taken elsewhere while this server could not be asked, whether or not it fits.
--
-- KEYS[1]: the counter. ARGV[1] ends with the numbers of the state that is added.
local c = charge_on(1)
local algorithm = algorithms[c.kind]
local numbers = {}
for position = 44, #ARGV[1], 8 do
  numbers[#numbers + 1] = unpack('<d', ARGV[1], position)
end
algorithm.load(c)
if algorithm.add(c, numbers) then
  algorithm.save(c)
end
return 1
