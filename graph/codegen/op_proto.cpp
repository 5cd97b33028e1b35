// Registers every prototype with Graph Engine when it opens this library.
#include PROTOTYPES
