# The messaging server: echoes size-prefixed messages while CPU-bound threads count.
#
# Source: slides 12 to 19 of Beazley's "In Search of the Perfect GIL". See README.md in this folder
# for what each line means.
use strict;
use warnings;
use Config;
use Getopt::Long;
use IO::Handle;
use IO::Socket::INET;
use JSON::PP;
use Socket      qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

# A thread shares its count now and then: what is shared is behind a lock of the interpreter's.
use constant COUNTS_AT_A_TIME => 1000;

sub serve {
    my ($listener) = @_;
    while ( my $conn = $listener->accept ) {
        $conn->setsockopt( IPPROTO_TCP, TCP_NODELAY, 1 );
        while ( read( $conn, my $head, 4 ) ) {
            read( $conn, my $message, unpack( 'N', $head ) );
            print {$conn} $head;
            $conn->flush;
            print {$conn} $message;
            $conn->flush;
        }
        close $conn;
    }
    return;
}

sub spin {
    my ($count) = @_;
    my $n = 0;
    while (1) {
        $n++;
        ${$count} = $n if $n % COUNTS_AT_A_TIME == 0;
    }
    return;
}

my ( $mode, $workers ) = ( 'thread', 0 );
GetOptions( 'mode=s' => \$mode, 'workers=i' => \$workers ) or exit 2;
my $lacks = !$Config{useithreads} && 'this Perl has no threads';
$lacks ||= $mode ne 'thread' && 'Perl has no green threads';
if ($lacks) {
    print encode_json( { lacks => $lacks } ), "\n";
    exit 3;
}
require threads;
require threads::shared;

STDOUT->autoflush(1);
my $listener = IO::Socket::INET->new( LocalAddr => '127.0.0.1', Listen => 16 ) or die "listen: $!";
my @counts   = map { my $count = 0; threads::shared::share( \$count ); \$count } 1 .. $workers;
threads->create( \&serve, $listener )->detach;
threads->create( \&spin,  $_ )->detach for @counts;
print encode_json( { port => $listener->sockport + 0 } ), "\n";
while (<STDIN>) {
    my @now = map { ${$_} + 0 } @counts;
    print encode_json( { at => clock_gettime(CLOCK_MONOTONIC), counts => \@now } ), "\n";
}
# Not `exit`, which waits for nobody either but says so.
require POSIX;
POSIX::_exit(0);
